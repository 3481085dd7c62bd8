import type { Logger } from '../../platform/logger.ts'
import { createNaturalBatch } from '../../platform/natural-batch.ts'
import { boundCalls } from './event-stream.ts'
import type { FeedWatch } from './feed-watch.ts'

export type WaitersDeps = {
  watch: FeedWatch
  /** Returns those of the ids that have ended. */
  overOf: (ids: readonly string[]) => Promise<string[]>
  logger: Logger
  signal: AbortSignal
}

type Until = { clientGone: AbortSignal; seconds: number }

/**
 * Holds the calls of this process that wait for a request or a submit. The end of a request or submit is a change in
 * the feed. All calls look up their ids when the feed grows, those that wake together by one statement.
 */
export function createWaiters({ watch, overOf, logger, signal }: WaitersDeps) {
  const bounded = boundCalls(1000, 'calls wait')
  const wakes = new Set<() => void>()
  // A stalled feed wakes no call, so all ids are looked up at least this often.
  const beat = setInterval(() => wakes.forEach((wake) => wake()), 1000).unref()
  signal.addEventListener('abort', () => clearInterval(beat))
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

  return {
    /**
     * Resolves when the id has ended, after the seconds, when the client disconnects, or when the process stops.
     * Throws HttpError 503 if too many calls wait.
     */
    wait: (id: string, { clientGone, seconds }: Until): Promise<void> =>
      bounded(async () => {
        const ended = AbortSignal.any([signal, clientGone, AbortSignal.timeout(seconds * 1000)])
        let resume = () => {}
        const wake = () => resume()
        ended.addEventListener('abort', wake)
        wakes.add(wake)
        const { leave } = await watch.join(wake)
        try {
          while (!ended.aborted) {
            const woken = new Promise<void>((resolve) => {
              resume = resolve
            })
            if (await isOver(id)) return
            await woken
          }
        } finally {
          wakes.delete(wake)
          leave()
        }
      }),
  }
}
