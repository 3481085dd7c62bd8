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
