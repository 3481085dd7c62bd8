import { createLeaseKeeper } from '../../platform/postgres/lease-keeper.ts'
import { claimSubscriptions, renewSubscriptions, type LeasedSubscription } from './leases.ts'
import { takeTurn, type TurnDeps } from './turn.ts'

export type SubscriptionSender = {
  /** Claims subscriptions with something to post and begins to post. Posting goes on afterwards. */
  runOnce: () => Promise<{ more: boolean }>
  /** Resolves when no turn is under way. */
  settled: () => Promise<void>
}

export type SubscriptionSenderDeps = TurnDeps & {
  /** Asks for another look, when a place is free and there is more to post. */
  wake: () => void
  leaseMs?: number
}

/** One post, from the dial to the last byte of its answer. */
export const postDeadlineMs = 10_000
/** Subscriptions of a process at one time: each holds one page of the feed. */
const maxAtOnce = 8
/** Room for one post and for renewals that are late. */
const usualLeaseMs = postDeadlineMs * 2

/** The role that posts the feed to subscribed services. Replicas share the subscriptions by their leases. */
export function createSubscriptionSender(deps: SubscriptionSenderDeps): SubscriptionSender {
  const { db, logger, signal, leaseMs = usualLeaseMs } = deps
  const leaseSeconds = leaseMs / 1000
  const underWay = new Set<Promise<void>>()
  const keeper = createLeaseKeeper<LeasedSubscription>({
    renew: (held) => renewSubscriptions(db, held, leaseSeconds),
    leaseMs,
    logger,
  })
  // A post that is under way when the lease ends could meet the next change of its request, posted by another replica.
  const neededMs = Math.min(postDeadlineMs + 1000, leaseMs / 2)

  const begin = (leased: LeasedSubscription, claimedAtMs: number) => {
    const kept = keeper.keep(leased, claimedAtMs)
    const run = async () => {
      try {
        const { more } = await takeTurn(deps, leased, () => kept.leftMs() > neededMs)
        if (more) deps.wake()
      } catch (error) {
        logger.error(
          { err: error, subscription: leased.name },
          'posting to a subscription broke off, another turn begins when its lease ends',
        )
      } finally {
        await kept.letGo()
      }
    }
    const ended: Promise<void> = run().finally(() => underWay.delete(ended))
    underWay.add(ended)
  }

  return {
    runOnce: async () => {
      const limit = signal.aborted ? 0 : maxAtOnce - underWay.size
      const claimedAtMs = performance.now()
      const claimed = limit > 0 ? await claimSubscriptions(db, { limit, leaseSeconds }) : []
      for (const leased of claimed) begin(leased, claimedAtMs)
      return { more: false }
    },
    settled: async () => void (await Promise.all(underWay)),
  }
}
