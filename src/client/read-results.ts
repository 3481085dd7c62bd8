import { setTimeout as delay } from 'node:timers/promises'
import type { FeedFilter } from '../receiver/feeding/feed-filter.ts'
import { jitteredPauseMs } from '../wire/backoff.ts'
import {
  ReadError,
  type ChangeSource,
  type ReadableChange,
  type RefusedSubmit,
  type ResultChange,
  type UnreadableChange,
} from './change.ts'
import { overHttp, type OverHttp } from './over-http.ts'
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
export {
  ReadError,
  type ReadableChange,
  type RefusedSubmit,
  type ResultChange,
  type UnreadableChange,
  type FeedFilter,
  type OverHttp,
  type SqlDriver,
}

export type ReadOptions = {
  /** Where from: the internal listener, or Postgres by a driver of your own. */
  from: OverHttp | { sql: SqlDriver }
  /** The position of the last change that is done; 0, or nothing, is the beginning of what is kept. */
  after?: number
  /** Only changes that match each member of it, as their requests are when they are read. */
  filter?: FeedFilter
  /** Ends the reading. */
  signal?: AbortSignal
  /** Called when reading failed and is tried again after so long. */
  onRetry?: (error: unknown, pauseMs: number) => void
}

export type Lag = {
  /** Of the change that was given last: how old it was then; 0 before the first. */
  ms: number
  position: number
  /** The newest change that is known of. */
  head: number
  /** Whether everything that is known of was given. */
  isCaughtUp: boolean
}

export type ResultReader = AsyncIterable<ResultChange> & { lag: () => Lag }

const retry = { baseMs: 250, capMs: 10_000 }

/**
 * Every change of a result from a position on, and every submit that was refused after its 202, once and in order, for as
 * long as it is read. Whatever cannot be reached is tried again for ever, with jittered pauses, from the
 * last change that was given: keep its position with your work. Throws ReadError
 * where trying again would not help, `position_expired` among them.
 */
export function readResults({
  from,
  after = 0,
  filter = {},
  signal = new AbortController().signal,
  onRetry,
}: ReadOptions): ResultReader {
  const source = 'sql' in from ? overSql(from.sql, filter) : overHttp(from, filter)
  const lag = { ms: 0, position: after, head: after }

  async function* changes(): AsyncGenerator<ResultChange, void, undefined> {
    while (!signal.aborted) {
      const page = await untilRead(source, { after: lag.position, signal, onRetry })
      if (page === undefined) return
      lag.head = Math.max(lag.head, page.head)
      for (const change of page.data) {
        if (signal.aborted) return
        // A position is a time, in microseconds.
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

/** A page; undefined where the signal aborted. */
async function untilRead(source: ChangeSource, { after, signal, onRetry }: Reading) {
  for (let tries = 1; !signal.aborted; tries += 1) {
    try {
      return await source(after, signal)
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
