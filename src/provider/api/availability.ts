import { databaseCodeOf, databaseErrorOf, isNoAnswer } from '../../runtime/postgres/errors.ts'
import { HttpError } from '../../runtime/http/http.ts'
import type { Logger } from '../../runtime/logger.ts'
import { DeadlineError, withDeadline } from '../../runtime/deadline.ts'

/** Requests that may be worked on at the same time; more would only wait in memory for a connection. */
const maxInFlight = 2000
const deadlineMs = 10_000
const retryAfterSeconds = 5

/** What Postgres or the way to it says when nothing is wrong with the request: 08 connection, 53 resources, 55P03 and 57014 waited too long, 57P shutdown, 25006 read-only. */
const outageCodes = /^(?:08...|53...|55P03|57014|57P0.|25006|ECONN\w+|EPIPE|ETIMEDOUT|ENOTFOUND|EAI_AGAIN|CONNECT_TIMEOUT|CONNECTION_\w+)$/

/** Runs the work behind an answer under a bound and a deadline; what is not the caller's fault is 503 with Retry-After. */
export function createAvailability(logger: Logger) {
  let inFlight = 0
  return async function available(work: () => Promise<void>): Promise<void> {
    if (inFlight >= maxInFlight) throw unavailable('too many requests are being answered at this moment')
    inFlight += 1
    const running = work().finally(() => (inFlight -= 1))
    try {
      await withDeadline(running, deadlineMs, 'the answer')
    } catch (error) {
      if (!isOutage(error)) throw error
      logger.warn({ err: error }, 'answered 503: the database did not answer')
      throw unavailable('the service cannot be reached at this moment')
    }
  }
}

function isOutage(error: unknown): boolean {
  if (error instanceof DeadlineError || isNoAnswer(error)) return true
  if (outageCodes.test(databaseCodeOf(error) ?? '')) return true
  const cause = databaseErrorOf(error)
  return cause instanceof AggregateError && cause.errors.some(isOutage)
}

function unavailable(message: string): HttpError {
  return new HttpError(503, 'unavailable', message, { headers: { 'Retry-After': String(retryAfterSeconds) } })
}
