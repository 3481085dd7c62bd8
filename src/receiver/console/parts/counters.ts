import { DeadlineError, withDeadline } from '../../../platform/deadline.ts'
import { HttpError } from '../../../platform/http/http.ts'
import { asHttpError } from '../../api/operation.ts'
import type { ReceiverDeps } from '../../program.ts'
import { readCounters, type Counters } from '../../queries/counters.ts'
import { sharedReads } from './shared-read.ts'

/** All pages together ask Postgres no more often than this. */
const freshMs = 5000
/** A page waits no longer for what stands beside it. */
const patienceMs = 100
/** What was read longer ago may be wrong: a read that takes long is repeated more seldom than it is fresh. */
const oldMs = 15_000

/** What waits for somebody, for the navigation of every page; undefined where it cannot be read at once: no counter is better than a wrong one. */
export function sharedCounters({ db, clock, settings, logger }: ReceiverDeps): () => Promise<Counters | undefined> {
  const reads = sharedReads<{ counters: Counters; readAt: number }>(freshMs)
  const read = async () => {
    const readAt = performance.now()
    return { counters: await readCounters(db, { now: clock(), stuckAfterSeconds: settings.stuckAfterSeconds }), readAt }
  }
  return async () => {
    try {
      const { counters, readAt } = await withDeadline(
        reads('counters', read),
        patienceMs,
        'counting for the navigation',
      )
      return performance.now() - readAt < oldMs ? counters : undefined
    } catch (error) {
      const isExpected = error instanceof DeadlineError || asHttpError(error, logger) instanceof HttpError
      if (!isExpected) logger.error({ err: error }, 'unexpected error while counting for the navigation')
      return undefined
    }
  }
}
