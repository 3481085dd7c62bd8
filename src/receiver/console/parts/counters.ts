import { DeadlineError, withDeadline } from '../../../platform/deadline.ts'
import { HttpError } from '../../../platform/http/http.ts'
import { asHttpError } from '../../api/operation.ts'
import type { ReceiverDeps } from '../../program.ts'
import { readWithin } from '../../queries/deadline.ts'
import { readCounters, type Counters } from '../../queries/trouble.ts'
import { sharedReads } from './shared-read.ts'

/** All pages together ask Postgres no more often than this. */
const freshMs = 5000
/** A page does not wait longer than this for the counters. */
const patienceMs = 100

type Counted = { counters: Counters; readAt: number }

export type SharedCounters = ReturnType<typeof sharedCounters>

export function sharedCounters({ db, clock, settings, logger }: ReceiverDeps) {
  const reads = sharedReads<Counted>(freshMs)
  let kept: Counted | undefined
  const count = async () => {
    const readAt = performance.now()
    const when = { ...settings, now: clock() }
    return { counters: await readWithin(db, (tx) => readCounters(tx, when)), readAt }
  }
  /** Returns the counters of the navigation; undefined where they cannot be read at once. */
  const read = async (): Promise<Counters | undefined> => {
    if (kept !== undefined && performance.now() - kept.readAt < freshMs) return kept.counters
    try {
      const { counters, readAt } = await withDeadline(
        reads('counters', count),
        patienceMs,
        'counting for the navigation',
      )
      // After a slow read, the next one is late: older counts are not shown.
      return performance.now() - readAt < 3 * freshMs ? counters : undefined
    } catch (error) {
      const isExpected = error instanceof DeadlineError || asHttpError(error, logger) instanceof HttpError
      if (!isExpected) logger.error({ err: error }, 'the numbers in the navigation could not be read')
      return undefined
    }
  }
  /** Keeps the counters that the first page shows, so that the next page shows the same. */
  const keep = (counters: Counters) => void (kept = { counters, readAt: performance.now() })
  return { read, keep }
}
