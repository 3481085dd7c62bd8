import { setTimeout as delay } from 'node:timers/promises'
import { claimDoubted, claimScheduled } from './poll-claims.ts'
import { beginPolls, newRun, type Begun, type ReconcilerDeps } from './reconciler.ts'

export type FollowUps = {
  /** One look at what is due; answers whether there may be more at once. The polls themselves go on after it. */
  runOnce: () => Promise<{ more: boolean }>
  /** When no poll is under way any more. */
  settled: () => Promise<void>
}

/** Polls that are under way at one time: one that hangs holds one place. */
const maxSideBySide = 16
const waitForPlaceMs = 1000
/**
 * A line that gets no calls is left alone until it may get some: the calls of a minute come back one by one, and a few
 * are worth a look.
 */
const minRestMs = 2000
/** Keys come back before their time too, by another process or an operator. */
const maxRestMs = 5000

/**
 * What has a time of its own for its next poll is polled when that comes, between the
 * runs of the reconciler, by the same claims and the same code: replicas and runs share them.
 */
export function createFollowUps(deps: ReconcilerDeps): FollowUps {
  const underWay = new Set<Promise<void>>()
  const scheduled = createRests(deps.clock)
  const doubts = createRests(deps.clock)
  const follow = (poll: Promise<void>) => {
    const ended = poll
      .catch((error: unknown) =>
        deps.logger.error({ err: error }, 'following a request up failed, it is polled again when its lease ends'),
      )
      .finally(() => underWay.delete(ended))
    underWay.add(ended)
  }

  return {
    runOnce: async () => {
      if (underWay.size >= maxSideBySide) {
        const waited = new AbortController()
        await Promise.race([
          ...underWay,
          delay(waitForPlaceMs, undefined, { signal: waited.signal, ref: false }).catch(() => {}),
        ])
        waited.abort()
      }
      const limit = maxSideBySide - underWay.size
      if (limit <= 0) return { more: false }
      const due = await claimScheduled(deps, { limit, resting: scheduled.lines() })
      if (due.length < limit)
        due.push(...(await claimDoubted(deps, { limit: limit - due.length, resting: doubts.lines() })))
      const onPostponed: Begun['onPostponed'] = (line, { retryAfterSeconds, isDoubt }) =>
        (isDoubt ? doubts : scheduled).rest(line, retryAfterSeconds)
      const polls = await beginPolls(deps, due, { run: newRun(), onPostponed })
      polls.forEach(follow)
      return { more: due.length === limit }
    },
    settled: async () => void (await Promise.all(underWay)),
  }
}

/** The lines that get no calls now. */
function createRests(clock: () => Date) {
  const restsUntil = new Map<string, number>()
  return {
    lines: () => {
      const now = clock().getTime()
      // A clock that was put back makes no rest longer.
      for (const [line, until] of restsUntil) if (until <= now || until - now > maxRestMs) restsUntil.delete(line)
      return new Set(restsUntil.keys())
    },
    rest: (line: string, seconds = 0) =>
      void restsUntil.set(line, clock().getTime() + Math.min(Math.max(seconds * 1000, minRestMs), maxRestMs)),
  }
}
