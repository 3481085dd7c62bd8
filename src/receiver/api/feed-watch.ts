import { withDeadline } from '../../platform/deadline.ts'
import { HttpError } from '../../platform/http/http.ts'
import type { Logger } from '../../platform/logger.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { headOf, readFeed, type FeedPage } from '../queries/feed.ts'
import { listenTo } from './listening.ts'
import { createRecentChanges } from './recent-changes.ts'

export type FeedWatchDeps = { db: Database; databaseUrl: string; logger: Logger; signal: AbortSignal }

export type FeedWatch = {
  /** One page; those who are about as far share what is read. */
  read: (page: { after: number; limit: number }) => Promise<FeedPage>
  /** Calls `onGrown` each time when the feed may have grown, until `leave` is called; throws HttpError 503 when too many wait. */
  join: (onGrown: () => void) => Promise<{ leave: () => void }>
}

const maxWaiters = 1000
/** LISTEN does not pass PgBouncer in transaction mode, and a connection can be lost: what was missed is found by this. */
const lookMs = 1000
const listenWithinMs = 1000
/** Connections that reading the feed may take from all else. */
const maxReads = 2

/** Everyone in this process who waits for the feed to grow, on one LISTEN connection, and their reads. */
export function createFeedWatch({ db, databaseUrl, logger, signal }: FeedWatchDeps): FeedWatch {
  const waiting = new Set<() => void>()
  let timer: NodeJS.Timeout | undefined
  let looking = false
  /** As of the last look that saw another, and how often something had been notified before it. */
  let head = 0
  let noticesAtLook = 0
  let notices = 0
  const recent = createRecentChanges()
  /** How often the feed has grown, as far as is known here: what was begun before is not shared with whoever heard of it. */
  let growths = 0
  const bounded = boundedBy(maxReads, (page: { after: number; limit: number }) => readFeed(db, page))
  const readShared = shared(({ after, limit }: { after: number; limit: number; growths: number }) =>
    bounded({ after, limit }),
  )

  const wakeAll = () => {
    growths += 1
    for (const onGrown of waiting) onGrown()
  }
  const listening = listenTo({
    channel: 'mediadock_feed',
    databaseUrl,
    logger,
    signal,
    // Anybody may notify: it is a hint to read on, whatever it says.
    onNotice: () => {
      notices += 1
      wakeAll()
    },
  })
  signal.addEventListener('abort', () => clearInterval(timer))

  const look = async () => {
    if (looking) return
    looking = true
    const before = notices
    try {
      const newest = await headOf(db)
      if (newest === head) return
      // What is told while we look may be what we see, or what comes after it.
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
    read: async (page) =>
      recent.after(page.after, page.limit) ?? recent.keep(page.after, await readShared({ ...page, growths })),
    join: async (onGrown) => {
      if (waiting.size >= maxWaiters)
        throw new HttpError(503, 'too_many_waiting', `${maxWaiters} calls wait for changes already`, {
          headers: { 'retry-after': '1' },
        })
      // One of its own, whatever was given: two that are the same would leave together.
      const waiter = () => onGrown()
      waiting.add(waiter)
      timer ??= setInterval(() => void look(), lookMs)
      await withDeadline(listening.start(), listenWithinMs, 'LISTEN').catch(() => {})
      return {
        leave: () => {
          waiting.delete(waiter)
          if (waiting.size > 0) return
          clearInterval(timer)
          timer = undefined
        },
      }
    },
  }
}

/** Who wants the same while it is being done gets that. */
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

/** No more than so many side by side; the others wait for their turn. */
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
