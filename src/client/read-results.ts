import { setTimeout as delay } from 'node:timers/promises'
import type { FeedFilter } from '../receiver/feeding/feed-filter.ts'
import { jitteredPauseMs } from '../wire/backoff.ts'
import type { OverHttp } from './api-call.ts'
import { ReadError, type ReadPage, type ResultChange } from './change.ts'
import { overHttp } from './over-http.ts'
import { overSql, type SqlDriver } from './over-sql.ts'

export {
  createClient,
  type Account,
  type Client,
  type ClientOptions,
  type GenerateOptions,
  type Generated,
  type Generation,
  type ModelEntry,
  type Output,
  type Progress,
  type Result,
  type SubmitOptions,
} from './create-client.ts'
export { GenerationError } from './generation-error.ts'
export type { ReadableChange, RefusedSubmit, UnreadableChange } from './change.ts'
export { ReadError, type ResultChange, type FeedFilter, type OverHttp, type SqlDriver }

export type ReadOptions = {
  /** Where to read: the internal listener, or Postgres with a driver of your own. */
  from: OverHttp | { sql: SqlDriver }
  /** The position of the last processed change. 0 or nothing starts at the oldest kept change. */
  after?: number
  /** Only changes that match every given member. Requests are judged as they are when the change is read. */
  filter?: FeedFilter
  /** Ends the reading. */
  signal?: AbortSignal
  /** Called after a failed read, before the pause and the next try. */
  onRetry?: (error: unknown, pauseMs: number) => void
}

export type Lag = {
  /** The age of the last returned change when it was returned. 0 before the first. */
  ms: number
  position: number
  /** The position of the newest known change. */
  head: number
  /** True if every known change was returned. */
  isCaughtUp: boolean
}

export type ResultReader = AsyncIterable<ResultChange> & { lag: () => Lag }

const retry = { baseMs: 250, capMs: 10_000 }

/**
 * Returns every change after a position once and in order, including submits that were refused after their 202. While
 * mediadock or Postgres cannot be reached, retries with jittered pauses until `signal` aborts. Store the position of
 * the last change with your work. Throws ReadError if a retry cannot succeed, for example with `position_expired`.
 */
export function readResults(options: ReadOptions): ResultReader {
  const { from, after = 0, filter = {}, signal = new AbortController().signal, onRetry } = options
  const readPage = 'sql' in from ? overSql(from.sql, filter) : overHttp(from, filter)
  const lag = { ms: 0, position: after, head: after }

  async function* changes(): AsyncGenerator<ResultChange, void, undefined> {
    while (!signal.aborted) {
      const page = await untilRead(readPage, { after: lag.position, signal, onRetry })
      if (page === undefined) return
      lag.head = Math.max(lag.head, page.head)
      for (const change of page.data) {
        if (signal.aborted) return
        // A position is a time in microseconds.
        const changedAt = 'changed_at' in change ? Date.parse(change.changed_at) : change.position / 1000
        lag.ms = Math.max(0, Date.now() - changedAt)
        lag.position = change.position
        yield change
      }
      lag.position = Math.max(lag.position, page.next_after)
    }
  }
  return { [Symbol.asyncIterator]: changes, lag: () => ({ ...lag, isCaughtUp: lag.position >= lag.head }) }
}

type Reading = { after: number; signal: AbortSignal; onRetry: ReadOptions['onRetry'] }

async function untilRead(readPage: ReadPage, { after, signal, onRetry }: Reading) {
  for (let tries = 1; !signal.aborted; tries += 1) {
    try {
      return await readPage(after, signal)
    } catch (error) {
      if (signal.aborted) return undefined
      if (error instanceof ReadError) throw error
      const pauseMs = jitteredPauseMs(tries, retry, Math.random)
      onRetry?.(error, pauseMs)
      await delay(pauseMs, undefined, { signal }).catch(() => {})
    }
  }
  return undefined
}
