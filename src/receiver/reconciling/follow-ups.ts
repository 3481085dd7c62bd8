import { setTimeout as delay } from 'node:timers/promises'
import { isAboutTheRow } from '../../platform/postgres/errors.ts'
import { claimExtra, claimScheduled } from './poll-claims.ts'
import { askForProgress } from './progress.ts'
import { beginPolls, newRun, type Begun, type ReconcilerDeps } from './reconciler.ts'

export type FollowUps = {
  /** One look at what is due; answers whether there may be more at once. The polls themselves go on after it. */
  runOnce: () => Promise<{ more: boolean }>
  /** When no poll is under way any more. */
  settled: () => Promise<void>
}

/** A poll that hangs holds one place of these for 10 s. */
const maxSideBySide = 16
/** The role's loop ends its round within this time, however long all places are taken. */
const waitForPlaceMs = 1000
/** The calls of a minute come back one by one: by then a few are worth a claim. */
const restMs = 3000

/**
 * Polls each request when its next poll is due, between the runs of the reconciler. Both use the same claims and the
 * same code, so that replicas and runs share the work. A line that got no call rests for a while. Follow-ups never take
 * overdue requests without a time for their next poll, nor requests of unknown keys: only runs of the reconciler do.
 */
export function createFollowUps(deps: ReconcilerDeps): FollowUps {
  const underWay = new Set<Promise<void>>()
  const scheduled = createRests(deps.clock)
  const extra = createRests(deps.clock)
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
      await askForProgress(deps).catch((error: unknown) => {
        if (!isAboutTheRow(error)) throw error
        deps.logger.warn({ err: error }, 'Postgres refuses to schedule polls for progress; other polls continue')
      })
      const due = await claimScheduled(deps, { limit, resting: scheduled.lines() })
      if (due.length < limit)
        due.push(...(await claimExtra(deps, { limit: limit - due.length, resting: extra.lines() })))
      const onPostponed: Begun['onPostponed'] = (line, isExtra) => (isExtra ? extra : scheduled).rest(line)
      const polls = await beginPolls(deps, due, { run: newRun(), onPostponed })
      polls.forEach(follow)
      return { more: due.length === limit }
    },
    settled: async () => void (await Promise.all(underWay)),
  }
}

/** The lines that rest. */
function createRests(clock: () => Date) {
  const restsUntil = new Map<string, number>()
  return {
    lines: () => {
      const now = clock().getTime()
      // A clock that was set back makes no rest longer.
      for (const [line, until] of restsUntil) if (until <= now || until - now > restMs) restsUntil.delete(line)
      return new Set(restsUntil.keys())
    },
    rest: (line: string) => void restsUntil.set(line, clock().getTime() + restMs),
  }
}
