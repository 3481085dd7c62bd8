import { Gauge, type Registry } from 'prom-client'
import { withDeadline } from '../../platform/deadline.ts'
import type { Logger } from '../../platform/logger.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { listSubscriptions, maxCountedBacklog } from './list-subscriptions.ts'

const readDeadlineMs = 3000

/** How much each subscription still has to be posted, read as it is scraped; absent while Postgres cannot be read. */
export function registerBacklogGauge({
  registry,
  db,
  logger,
}: {
  registry: Registry
  db: Database
  logger: Logger
}): void {
  void new Gauge({
    name: 'mediadock_subscription_backlog',
    help: `Changes that a subscription has still to be posted, counted up to ${maxCountedBacklog}`,
    labelNames: ['name'],
    registers: [registry],
    async collect() {
      this.reset()
      try {
        const all = await withDeadline(listSubscriptions(db), readDeadlineMs, 'reading the backlogs of subscriptions')
        for (const { name, backlog } of all) this.set({ name }, backlog)
      } catch (error) {
        logger.warn({ err: error }, 'the backlogs of subscriptions are left out of the metrics')
      }
    },
  })
}
