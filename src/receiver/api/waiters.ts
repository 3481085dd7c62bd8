import { setTimeout as delay } from 'node:timers/promises'
import { HttpError } from '../../platform/http/http.ts'
import type { Logger } from '../../platform/logger.ts'
import { maxWaiters, type FeedWatch } from './feed-watch.ts'
import { abortOf } from './operation.ts'

export type WaitersDeps = {
  watch: FeedWatch
  /** Returns those of the ids that have ended. */
  overOf: (ids: readonly string[]) => Promise<string[]>
  logger: Logger
  signal: AbortSignal
}

export type Waiters = {
  /**
   * Resolves when the id has ended, after the seconds, when the client disconnects, or when the process stops.
   * Throws HttpError 503 if too many calls wait.
   */
  wait: (id: string, until: { clientGone: AbortSignal; seconds: number }) => Promise<void>
}

/**
 * Holds the calls of this process that wait for a request or a submit. Every end of a wait is a change in the feed, so
 * one statement looks up all ids when the feed grows.
 */
export function createWaiters({ watch, overOf, logger, signal }: WaitersDeps): Waiters {
  const waiting = new Map<string, Set<AbortController>>()
  let count = 0
  let timer: NodeJS.Timeout | undefined
  let joined: ReturnType<FeedWatch['join']> | undefined
  const look = lookingUp(waiting, { overOf, logger })
  const add = (id: string, over: AbortController) => {
    count += 1
    // A stalled feed wakes no call, so all ids are looked up at least this often.
    timer ??= setInterval(() => void look(), 1000)
    waiting.set(id, (waiting.get(id) ?? new Set()).add(over))
  }
  const remove = (id: string, over: AbortController) => {
    count -= 1
    const group = waiting.get(id)
    group?.delete(over)
    if (group?.size === 0) waiting.delete(id)
    if (count > 0) return
    clearInterval(timer)
    timer = undefined
    void joined?.then(({ leave }) => leave()).catch(() => {})
    joined = undefined
  }

  return {
    wait: async (id, { clientGone, seconds }) => {
      if (count >= maxWaiters)
        throw new HttpError(503, 'too_many_waiting', `${maxWaiters} calls wait already`, {
          headers: { 'retry-after': '1' },
        })
      const over = new AbortController()
      const ended = AbortSignal.any([over.signal, signal, clientGone, AbortSignal.timeout(seconds * 1000)])
      add(id, over)
      try {
        joined ??= watch.join(() => void look())
        await joined.catch((error: unknown) => {
          joined = undefined
          throw error
        })
        // The id may have ended after the caller's read and before joining.
        const [isOver] = await overOf([id])
        if (isOver === undefined) await abortOf(ended)
      } finally {
        remove(id, over)
      }
    },
  }
}

type Looking = Pick<WaitersDeps, 'overOf' | 'logger'>

/** Returns a function that looks up all ids and ends their waits. A wake during a look causes one more look. */
function lookingUp(waiting: ReadonlyMap<string, ReadonlySet<AbortController>>, { overOf, logger }: Looking) {
  let isLooking = false
  let isWoken = false
  return async (): Promise<void> => {
    isWoken = true
    if (isLooking) return
    isLooking = true
    try {
      while (isWoken && waiting.size > 0) {
        isWoken = false
        for (const id of await overOf([...waiting.keys()])) waiting.get(id)?.forEach((over) => over.abort())
        // Under a steady load the feed grows all the time. Changes are gathered for this long before the next look.
        await delay(50)
      }
    } catch (error) {
      logger.warn({ err: error }, 'looking up the ids of waiting calls failed; trying again within a second')
    } finally {
      isLooking = false
    }
  }
}
