import { createPlaces } from '../../platform/places.ts'
import { createLeaseKeeper } from '../../platform/postgres/lease-keeper.ts'
import { claimSubscriptions, renewSubscriptions, type LeasedSubscription } from './leases.ts'
import { takeTurn, type TurnDeps } from './turn.ts'

export type SubscriptionSenderDeps = TurnDeps & {
  /** Asks for another round, when a place is free and there is more to post. */
  wake: () => void
  leaseMs?: number
}

/**
 * For one post, from connecting to the last byte of the answer. The lease of 20 s must outlast it, which double would
 * not leave; at half, busy endpoints fail.
 */
export const postDeadlineMs = 10_000
/** Leaves time for one post and for late renewals. */
const usualLeaseMs = postDeadlineMs * 2

/** Creates the role that posts the feed to subscriptions. Replicas share them by leases. */
export function createSubscriptionSender(deps: SubscriptionSenderDeps) {
  const { db, logger, signal, leaseMs = usualLeaseMs } = deps
  const leaseSeconds = leaseMs / 1000
  // Subscriptions at a time in a process: each holds one page of the feed.
  const places = createPlaces(8)
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
    places.begin(run(), (error) =>
      logger.error(
        { err: error, subscription: leased.name },
        'posting to a subscription failed, trying again after its lease ends',
      ),
    )
  }

  return {
    /** Claims subscriptions with changes to post and starts posting, which continues afterwards. */
    runOnce: async () => {
      const limit = signal.aborted ? 0 : places.free()
      const claimedAtMs = performance.now()
      const claimed = limit > 0 ? await claimSubscriptions(db, { limit, leaseSeconds }) : []
      for (const leased of claimed) begin(leased, claimedAtMs)
      return { more: false }
    },
    /** Resolves when no turn is under way. */
    idle: places.idle,
  }
}
