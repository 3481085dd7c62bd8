import { claimSubscriptions, renewSubscriptions, type LeasedSubscription } from './leases.ts'
import { takeTurn, type TurnDeps } from './turn.ts'

export type SubscriptionSender = {
  /** One look: what is held is held on to, and what has something to post is begun. Posting goes on after it. */
  runOnce: () => Promise<{ more: boolean }>
  /** When nothing is under way any more. */
  settled: () => Promise<void>
}

export type SubscriptionSenderDeps = TurnDeps & {
  /** For another look, when a place is free and there is more. */
  wake: () => void
  leaseMs?: number
}

/** The whole exchange of one post (spec: ten seconds). */
export const postDeadlineMs = 10_000
/** Subscriptions of a process at one time: each holds one page of the feed. */
const maxAtOnce = 8
/**
 * Renewed every second. No post begins so late that it could go on when the lease
 * has ended: then another replica may be posting the same request's next change.
 */
const usualLeaseMs = postDeadlineMs * 2

type Work = { leased: LeasedSubscription; goodUntil: number; ended: Promise<void> }

/** The role that posts the feed to subscribed services. Replicas share the subscriptions by their leases. */
export function createSubscriptionSender(deps: SubscriptionSenderDeps): SubscriptionSender {
  const { db, logger, signal, leaseMs = usualLeaseMs } = deps
  const underWay = new Map<string, Work>()
  const lastsMs = leaseMs - Math.min(postDeadlineMs + 1000, leaseMs / 2)

  const begin = (leased: LeasedSubscription, goodUntil: number) => {
    const work: Work = { leased, goodUntil, ended: Promise.resolve() }
    const holds = () => performance.now() < work.goodUntil
    const run = async () => {
      let more = false
      try {
        ;({ more } = await takeTurn(deps, leased, holds))
      } catch (error) {
        logger.error(
          { err: error, subscription: leased.name },
          'posting to a subscription broke off, another turn begins when its lease ends',
        )
      } finally {
        // What was given back may have been claimed here again already.
        if (underWay.get(leased.id) === work) underWay.delete(leased.id)
        if (more) deps.wake()
      }
    }
    underWay.set(leased.id, work)
    work.ended = run()
  }

  return {
    runOnce: async () => {
      const lookedAt = performance.now()
      const held = [...underWay.values()]
      const claims = held.map(({ leased }) => leased)
      const ours = new Set(await renewSubscriptions(db, claims, leaseMs / 1000))
      for (const work of held) work.goodUntil = ours.has(work.leased) ? lookedAt + lastsMs : -Infinity
      const claimedAt = performance.now()
      const limit = signal.aborted ? 0 : maxAtOnce - underWay.size
      for (const leased of limit > 0 ? await claimSubscriptions(db, { limit, leaseSeconds: leaseMs / 1000 }) : [])
        begin(leased, claimedAt + lastsMs)
      return { more: false }
    },
    settled: async () => void (await Promise.all([...underWay.values()].map(({ ended }) => ended))),
  }
}
