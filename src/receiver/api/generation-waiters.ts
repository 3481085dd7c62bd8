import { HttpError } from '../../platform/http/http.ts'
import type { Logger } from '../../platform/logger.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { overOf } from '../submitting/generations.ts'
import type { FeedWatch } from './feed-watch.ts'

export type GenerationWaiters = {
  /** Calls `onOver` once the submit is refused or expired, or its result complete, until `leave` is called; throws HttpError 503 when too many wait. */
  join: (idempotencyKey: string, onOver: () => void) => Promise<{ leave: () => void }>
}

const maxWaiters = 1000
const lookAgainMs = 1000

/**
 * All that wait for submits in this process. Each of the ends that they wait for is a change of the
 * feed, so all of them are looked up in one statement when the feed grows.
 */
export function createGenerationWaiters({
  db,
  watch,
  logger,
}: {
  db: Database
  watch: FeedWatch
  logger: Logger
}): GenerationWaiters {
  const waiting = new Map<string, Set<() => void>>()
  let count = 0
  let watching: ReturnType<FeedWatch['join']> | undefined
  let looking = false
  let hasGrown = false

  const look = async () => {
    hasGrown = true
    if (looking) return
    looking = true
    try {
      while (hasGrown && waiting.size > 0) {
        hasGrown = false
        for (const key of await overOf(db, [...waiting.keys()])) waiting.get(key)?.forEach((onOver) => onOver())
      }
    } catch (error) {
      logger.warn({ err: error }, 'looking for submits that are over failed, it is tried again in a second')
      setTimeout(() => void look(), lookAgainMs).unref()
    } finally {
      looking = false
    }
  }

  const leave = (key: string, onOver: () => void) => {
    const group = waiting.get(key)
    if (!group?.delete(onOver)) return
    count -= 1
    if (group.size === 0) waiting.delete(key)
    if (count > 0) return
    void watching?.then((joined) => joined.leave()).catch(() => {})
    watching = undefined
  }

  return {
    join: async (key, onOver) => {
      if (count >= maxWaiters)
        throw new HttpError(503, 'too_many_waiting', `${maxWaiters} calls wait for submits already`, {
          headers: { 'retry-after': '1' },
        })
      count += 1
      const group = waiting.get(key) ?? new Set()
      waiting.set(key, group.add(onOver))
      try {
        await (watching ??= watch.join(() => void look()))
      } catch (error) {
        leave(key, onOver)
        throw error
      }
      return { leave: () => leave(key, onOver) }
    },
  }
}
