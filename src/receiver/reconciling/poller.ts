import { createParallelWork } from '../../platform/parallel-work.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import { faultOf } from '../../platform/postgres/errors.ts'
import { later } from '../../platform/postgres/time.ts'
import { askForExtraPollNow, extraPollAt } from '../domain/poll-schedule.ts'
import type { RestingQueues } from './due.ts'
import { claimDue, type ClaimDeps } from './poll-claims.ts'
import { beginPolls, type PollingDeps } from './polling.ts'

/*
 * Makes due polls between the runs of the reconciler (reconciler.ts). Both use the same claims and code, so that
 * replicas and runs share the work. program.ts lists the files that a poll passes through.
 */

export type Poller = ReturnType<typeof createPoller>

/** A poll queue without calls rests this long, so that its next claim gets several calls. */
export const restMs = 3000

/** Creates the role that polls requests as soon as they are due, but for those of duePollsOfRuns(). */
export function createPoller(deps: PollingDeps & { resting: RestingQueues }) {
  // Polls in progress at a time. A poll that hangs counts until its call ends (callDeadlineMs).
  const parallel = createParallelWork(16)
  const { resting } = deps
  const onError = (error: unknown) =>
    deps.logger.error({ err: error }, 'polling a request failed, it is polled again after its lease expires')

  return {
    /** One round: claims due polls and starts them, which continue afterwards. Returns true if there may be more. */
    runOnce: async () => {
      if (parallel.free() === 0) await parallel.untilOneEnds()
      const limit = parallel.free()
      if (limit <= 0) return { more: false }
      await askForProgress(deps).catch((error: unknown) => {
        if (faultOf(error) === 'server') throw error
        deps.logger.warn({ err: error }, 'Postgres refuses to schedule polls for progress; other polls continue')
      })
      const due = await claimDue(deps, { limit, ...resting.queues() })
      for (const polled of await beginPolls(deps, due, resting)) parallel.begin(polled, onError)
      return { more: due.length === limit }
    },
    /** Resolves when no poll is under way. */
    idle: parallel.idle,
  }
}

/** Short, so that progress looks live. The trial calls of the key (10 a minute by default) bound what it costs. */
const progressEverySeconds = 3

/**
 * Asks for an extra poll of each open request that a caller of this process waits for, to update its progress. Like
 * every extra poll, it takes a trial call. One that is asked for later comes now: a stranger may ask for it.
 */
async function askForProgress({ db, time, awaited }: ClaimDeps): Promise<void> {
  const ids = awaited()
  if (ids.length === 0) return
  const now = time()
  await db.execute(sql`
    update mediadock.requests set ${askForExtraPollNow(now)}
    where request_id = any(array(
      select r.request_id from mediadock.requests r
      where r.request_id = any(${sql.param([...ids])}::uuid[]) and r.landed_at is null
        and (${extraPollAt} is null or ${extraPollAt} > ${now})
        and coalesce(r.polled_at, r.tracked_at) <= ${later(now, -progressEverySeconds)}
      for update skip locked))`)
}

/** Keeps the requests that callers of this process wait for. Claims take them first. */
export function createAwaited() {
  const waiting = new Set<{ requestId: string }>()
  return {
    /** Records that a caller waits for a request. Call the returned function when the wait ends. */
    add: (requestId: string): (() => void) => {
      const wait = { requestId }
      waiting.add(wait)
      return () => void waiting.delete(wait)
    },
    ids: (): readonly string[] => [...new Set([...waiting].map(({ requestId }) => requestId))],
  }
}
