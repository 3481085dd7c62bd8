import { Counter } from 'prom-client'
import { startLoop } from '../../platform/loop.ts'
import { createPoster } from '../../platform/outward/poster.ts'
import { resolve } from '../../platform/outward/resolver.ts'
import { maxCounted } from '../domain/limits.ts'
import { readForScrape, registerGauge } from '../metrics.ts'
import type { ReceiverSettings } from '../settings.ts'
import { pollMs, type RunningSlice, type SliceDeps } from '../slice.ts'
import { listSubscriptions } from './list-subscriptions.ts'
import { judgeSubscriptionUrl } from './posting.ts'
import { createSubscriptionSender, postDeadlineMs } from './sender.ts'

/** Creates the HTTP client for posts. It checks each address when it is dialled. */
export function createSubscriptionPoster({ production }: Pick<ReceiverSettings, 'production'>) {
  return createPoster({
    judge: (url) => judgeSubscriptionUrl(url, { production }),
    resolve,
    timeoutMs: postDeadlineMs,
    connectionsPerHost: 16,
  })
}

/** Starts the role that posts the feed to subscriptions. */
export function startSubscribing(deps: SliceDeps): RunningSlice {
  const { settings, after, logger, signal } = deps
  const posts = createSubscriptionMetrics(deps)
  const poster = createSubscriptionPoster(settings)
  const onPosted = (name: string, outcome: string) => posts.inc({ name, outcome })
  const sender = createSubscriptionSender({ ...deps, poster, onPosted, wake: () => loop.wake() })
  const loop = startLoop({ name: 'subscriptions', runOnce: sender.runOnce, idleMs: pollMs, after, logger, signal })
  const idle = async () => {
    await sender.idle()
    await poster.close()
  }
  return { loop, idle, onSequenced: loop.wake }
}

/** Registers the metrics of subscriptions and returns the counter of posts. Backlogs are read at each scrape. */
export function createSubscriptionMetrics({ registry, db, logger }: Pick<SliceDeps, 'registry' | 'db' | 'logger'>) {
  const name = 'mediadock_subscription_backlog'
  const backlogs = async () => (await listSubscriptions(db)).map((one) => [{ name: one.name }, one.backlog] as const)
  registerGauge(registry, {
    name,
    help: `Changes not posted to a subscription, also those that its filter skips, counted up to ${maxCounted}`,
    labelNames: ['name'],
    read: () => readForScrape(logger, name, backlogs),
  })
  return new Counter({
    name: 'mediadock_subscription_posts_total',
    help: 'Posts of changes to subscriptions, by outcome',
    labelNames: ['name', 'outcome'],
    registers: [registry],
  })
}
