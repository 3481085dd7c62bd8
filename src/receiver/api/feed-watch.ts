import { withDeadline } from '../../platform/deadline.ts'
import type { Logger } from '../../platform/logger.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { headOf, readFeed, type FeedPage, type FeedWanted } from '../queries/feed.ts'
import { listenTo } from './listening.ts'

export type FeedWatchDeps = { db: Database; databaseUrl: string; logger: Logger; signal: AbortSignal }

export type FeedWatch = ReturnType<typeof createFeedWatch>

/** Wakes every reader in this process that waits for the feed to grow, from one LISTEN connection, and shares reads. */
export function createFeedWatch({ db, databaseUrl, logger, signal }: FeedWatchDeps) {
  const waiting = new Set<() => void>()
  /** Of these, the readers that also look each second. */
  const impatient = new Set<() => void>()
  let timer: NodeJS.Timeout | undefined
  let looking = false
  /** The newest position at the last look, and the number of notices before that look. */
  let head = 0
  let noticesAtLook = 0
  let notices = 0
  /** Counts known growths of the feed. A read that began before a growth is not shared with readers that it woke. */
  let growths = 0
  // The number of connections that reading the feed may take from other reads.
  const bounded = boundedBy(2, (page: FeedWanted) => readFeed(db, page))
  const readShared = shared(({ growths: _growths, ...page }: FeedWanted & { growths: number }) => bounded(page))

  const wakeAll = () => {
    growths += 1
    for (const onGrown of waiting) onGrown()
  }
  const listening = listenTo({
    channel: 'mediadock_feed',
    databaseUrl,
    logger,
    signal,
    // The notice is only a hint to read: its content is not used, since any client may send one.
    onNotice: () => {
      notices += 1
      wakeAll()
    },
  })
  signal.addEventListener('abort', () => clearInterval(timer))

  const look = async () => {
    for (const onSecond of impatient) onSecond()
    if (looking) return
    looking = true
    const before = notices
    try {
      const newest = await headOf(db)
      if (newest === head) return
      // A notice during the look may be about the change seen here, or about a later one.
      if (newest > head && noticesAtLook === notices) listening.missed()
      noticesAtLook = before
      head = newest
      wakeAll()
    } catch (error) {
      logger.warn({ err: error }, 'looking for changes failed, the next round tries again')
    } finally {
      looking = false
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
        await withDeadline(listening.start(), 1000, 'LISTEN').catch(() => {})
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
