import { DeadlineError, withDeadline } from '../../../platform/deadline.ts'
import { HttpError } from '../../../platform/http/http.ts'
import { asHttpError } from '../../api/operation.ts'
import type { ReceiverDeps } from '../../program.ts'
import { readCounters, type Counters } from '../../queries/counters.ts'
import { sharedReads } from './shared-read.ts'

/** All pages together ask Postgres no more often than this. */
const freshMs = 5000
/** A page does not wait longer than this for the counters. */
const patienceMs = 100
/** Counts older than this are not shown: a slow read is repeated less often than it stays fresh. */
const oldMs = 15_000

/** The counters of the navigation; undefined where they cannot be read at once. */
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
