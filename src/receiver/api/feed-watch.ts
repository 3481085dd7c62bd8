import { withDeadline } from '../../platform/deadline.ts'
import type { Logger } from '../../platform/logger.ts'
import { createNaturalBatch } from '../../platform/natural-batch.ts'
import { createPool, type Database } from '../../platform/postgres/postgres.ts'
import { headOf, readFeed, type FeedPage, type FeedWanted } from '../queries/feed.ts'
import { boundCalls } from './event-stream.ts'

export type FeedWatchDeps = { db: Database; databaseUrl: string; logger: Logger; signal: AbortSignal }

export type FeedWatch = ReturnType<typeof createFeedWatch>

/** Wakes every reader in this process that waits for the feed to grow, from one LISTEN connection, and shares reads. */
export function createFeedWatch({ db, databaseUrl, logger, signal }: FeedWatchDeps) {
  const waiting = new Set<() => void>()
  /** Of these, the readers that also look each second. */
  const impatient = new Set<() => void>()
  let timer: NodeJS.Timeout | undefined
  let listening: Promise<void> | undefined
  /** The newest position at the last look. */
  let head = 0
  /** Counts known growths of the feed. A read that began before a growth is not shared with readers that it woke. */
  let growths = 0
  // The number of connections that reading the feed may take from other reads.
  const bounded = boundedBy(2, (page: FeedWanted) => readFeed(db, page))
  const readShared = shared(({ growths: _growths, ...page }: FeedWanted & { growths: number }) => bounded(page))
  const readHead = shared(() => headOf(db))
  signal.addEventListener('abort', () => clearInterval(timer))

  const wakeAll = () => {
    growths += 1
    for (const onGrown of waiting) onGrown()
  }
  /** Opens the connection. If it cannot listen, the looks of each second find changes, and the next reader tries. */
  const listen = async (): Promise<void> => {
    const pool = createPool({ url: databaseUrl, max: 1 })
    const close = () => void pool.close().catch(() => {})
    signal.addEventListener('abort', close)
    try {
      // The notice is only a hint to read: its content is not used, since any client may send one.
      await pool.client.listen('mediadock_feed', wakeAll)
    } catch (error) {
      logger.warn({ err: error }, 'LISTEN failed, polling for changes every second')
      listening = undefined
      signal.removeEventListener('abort', close)
      close()
    }
  }
  const look = async () => {
    for (const onSecond of impatient) onSecond()
    try {
      const newest = await readHead('head')
      if (newest === head) return
      head = newest
      wakeAll()
    } catch (error) {
      logger.warn({ err: error }, 'looking for changes failed, the next round tries again')
    }
  }

  return {
    /** Reads one page. Readers at the same position share one read. */
    read: (page: FeedWanted): Promise<FeedPage> => readShared({ ...page, growths }),
    /**
     * Yields at once, and then each time the feed may have grown, until `over` aborts. A growth while the reader works
     * makes it yield again. With `eachSecond` it yields at least that often: a stalled feed does not grow.
     */
    async *growths(over: AbortSignal, { eachSecond = false } = {}): AsyncGenerator<undefined, void> {
      let wake = () => {}
      const waiter = () => wake()
      waiting.add(waiter)
      if (eachSecond) impatient.add(waiter)
      over.addEventListener('abort', waiter)
      // LISTEN does not work through PgBouncer in transaction mode, and connections get lost. Polling finds missed
      // changes.
      timer ??= setInterval(() => void look(), 1000)
      try {
        if (!signal.aborted) await withDeadline((listening ??= listen()), 1000, 'LISTEN').catch(() => {})
        while (!over.aborted) {
          const woken = new Promise<void>((resolve) => {
            wake = resolve
          })
          yield
          await woken
        }
      } finally {
        waiting.delete(waiter)
        impatient.delete(waiter)
        if (waiting.size === 0) {
          clearInterval(timer)
          timer = undefined
        }
      }
    },
  }
}

/** Wraps `work` so that concurrent calls with the same key share one result. */
function shared<Key, T>(work: (key: Key) => Promise<T>): (key: Key) => Promise<T> {
  const underWay = new Map<string, Promise<T>>()
  return (key) => {
    const name = JSON.stringify(key)
    const known = underWay.get(name)
    if (known) return known
    const running = work(key).finally(() => underWay.delete(name))
    underWay.set(name, running)
    return running
  }
}

/** Wraps `work` so that at most `most` calls run at a time. Others wait for their turn. */
function boundedBy<Key, T>(most: number, work: (key: Key) => Promise<T>): (key: Key) => Promise<T> {
  const queue: (() => void)[] = []
  let running = 0
  return async (key) => {
    if (running >= most) await new Promise<void>((resolve) => queue.push(resolve))
    else running += 1
    try {
      return await work(key)
    } finally {
      const next = queue.shift()
      if (next) next()
      else running -= 1
    }
  }
}

export type WaitersDeps = {
  watch: FeedWatch
  /** Returns those of the ids that have ended. */
  overOf: (ids: readonly string[]) => Promise<string[]>
  logger: Logger
  signal: AbortSignal
}

/**
 * Returns a function that waits until a request or a submit has ended, for the seconds, or until the client disconnects
 * or the process stops. Its end is a change in the feed: calls look up their ids when the feed grows, those that wake
 * together by one statement. The function throws HttpError 503 if too many calls wait.
 */
export function createWaiters({ watch, overOf, logger, signal }: WaitersDeps) {
  const bounded = boundCalls(1000, 'calls wait')
  const isOver = createNaturalBatch({
    parallel: 1,
    answerAll: async (ids: readonly string[]): Promise<boolean[]> => {
      const over = await overOf([...new Set(ids)]).catch((error: unknown): string[] => {
        logger.warn({ err: error }, 'looking up the ids of waiting calls failed; trying again within a second')
        return []
      })
      const ended = new Set(over)
      return ids.map((id) => ended.has(id))
    },
  })
  return (id: string, { clientGone, seconds }: { clientGone: AbortSignal; seconds: number }): Promise<void> =>
    bounded(async () => {
      const ended = AbortSignal.any([signal, clientGone, AbortSignal.timeout(seconds * 1000)])
      for await (const _grown of watch.growths(ended, { eachSecond: true })) if (await isOver(id)) return
    })
}
