import { Counter } from 'prom-client'
import { startLoop } from '../../platform/loop.ts'
import { createPoster } from '../../platform/outward/poster.ts'
import { resolve } from '../../platform/outward/resolver.ts'
import { createParallelWork } from '../../platform/parallel-work.ts'
import { createLeaseKeeper } from '../../platform/postgres/lease-keeper.ts'
import { maxCounted } from '../domain/limits.ts'
import { readForScrape, registerGauge } from '../metrics.ts'
import type { ReceiverSettings } from '../settings.ts'
import { pollMs, type RunningSlice, type SliceDeps } from '../slice.ts'
import { claimSubscriptions, renewSubscriptions, type LeasedSubscription } from './leases.ts'
import { listSubscriptions } from './list-subscriptions.ts'
import { judgeSubscriptionUrl, takeTurn, type TurnDeps } from './turn.ts'

/** For one post, from connecting to the last byte of the answer. The lease of 20 s must outlast it. */
const postDeadlineMs = 10_000
/** Leaves time for one post and for late renewals. */
const usualLeaseMs = postDeadlineMs * 2

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

type SubscriptionSenderDeps = TurnDeps & {
  /** Asks for another round, when a place is free and there is more to post. */
  wake: () => void
  leaseMs?: number
}

/** Creates the rounds of the role. Replicas share the subscriptions by leases. */
export function createSubscriptionSender(deps: SubscriptionSenderDeps) {
  const { db, logger, signal, leaseMs = usualLeaseMs } = deps
  const leaseSeconds = leaseMs / 1000
  // Subscriptions at a time in a process: each holds one page of the feed.
  const parallel = createParallelWork(8)
  const keeper = createLeaseKeeper<LeasedSubscription>({
    renew: (held) => renewSubscriptions(db, held, leaseSeconds),
    leaseMs,
    logger,
  })
  // No post begins that could last beyond the lease: another replica might post the request's next change meanwhile.
  const neededMs = Math.min(postDeadlineMs + 1000, leaseMs / 2)

  const begin = (leased: LeasedSubscription, claimedAtMs: number) => {
    const kept = keeper.keep(leased, claimedAtMs)
    const run = async () => {
      try {
        const { more } = await takeTurn(deps, leased, () => kept.leftMs() > neededMs)
        if (more) deps.wake()
      } finally {
        await kept.letGo()
      }
    }
    parallel.begin(run(), (error) =>
      logger.error(
        { err: error, subscription: leased.name },
        'posting to a subscription failed, trying again after its lease expires',
      ),
    )
  }

  return {
    runOnce: async () => {
      const limit = signal.aborted ? 0 : parallel.free()
      const claimedAtMs = performance.now()
      const claimed = limit > 0 ? await claimSubscriptions(db, { limit, leaseSeconds }) : []
      for (const leased of claimed) begin(leased, claimedAtMs)
      return { more: false }
    },
    idle: parallel.idle,
  }
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
