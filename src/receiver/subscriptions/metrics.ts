import { Counter, Gauge, type Registry } from 'prom-client'
import { withDeadline } from '../../platform/deadline.ts'
import type { Logger } from '../../platform/logger.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { listSubscriptions, maxCountedBacklog } from './list-subscriptions.ts'

const readDeadlineMs = 3000

/** Registers the metrics of subscriptions and returns the counter of posts. Backlogs are read at each scrape. */
export function createSubscriptionMetrics({
  registry,
  db,
  logger,
}: {
  registry: Registry
  db: Database
  logger: Logger
}) {
  void new Gauge({
    name: 'mediadock_subscription_backlog',
    help: `Changes still to be posted to a subscription, counted up to ${maxCountedBacklog}`,
    labelNames: ['name'],
    registers: [registry],
    async collect() {
      this.reset()
      try {
        const all = await withDeadline(listSubscriptions(db), readDeadlineMs, 'reading the backlogs of subscriptions')
        for (const { name, backlog } of all) this.set({ name }, backlog)
      } catch (error) {
        logger.warn({ err: error }, 'the metrics leave out mediadock_subscription_backlog')
      }
    },
  })
  return new Counter({
    name: 'mediadock_subscription_posts_total',
    help: 'Posts of changes to subscriptions, by outcome',
    labelNames: ['name', 'outcome'],
    registers: [registry],
  })
}
