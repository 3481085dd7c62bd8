import { setTimeout as delay } from 'node:timers/promises'
import type { Response } from 'express'
import { errorBody, HttpError } from '../../platform/http/http.ts'
import type { Logger } from '../../platform/logger.ts'
import type { FeedFilter } from '../feeding/feed-filter.ts'
import type { FeedItem, FeedPage } from '../queries/feed.ts'
import { createEventStreams } from './event-stream.ts'
import type { FeedWatch } from './feed-watch.ts'
import { asHttpError } from './operation.ts'

export type FeedStreamDeps = { watch: FeedWatch; logger: Logger; signal: AbortSignal }

/** Streams changes from a first page on, as server-sent events, until the client disconnects or the process stops. */
export function createFeedStream({ watch, logger, signal }: FeedStreamDeps) {
  const stream = createEventStreams({ max: 100, what: 'streams of the feed', logger, signal })
  return async (res: Response, first: FeedPage, filter: FeedFilter = {}): Promise<void> => {
    let wake = () => {}
    const { leave } = await watch.join(() => wake())
    await stream(res, async (write, closed) => {
      closed.addEventListener('abort', () => wake())
      let page = first
      let passed = 0
      while (!closed.aborted) {
        const woken = new Promise<void>((resolve) => {
          wake = resolve
        })
        if (page.data.length > 0) await write(page.data.map(toEvent).join(''))
        // An id without data moves Last-Event-ID over the changes that do not match.
        else if (page.next_after > passed) await write(`id: ${page.next_after}\n\n`)
        passed = page.next_after
        const next = await nextPage(page.next_after)
        if (next instanceof HttpError) return write(`event: error\ndata: ${JSON.stringify(errorBody(next))}\n\n`)
        if (next === undefined) await delay(1000, undefined, { signal: closed })
        else if (next.data.length === 0 && next.next_after >= next.head) {
          await woken
          // Changes that arrive during this pause share the next read.
          await delay(20, undefined, { signal: closed })
        }
        if (next !== undefined) page = next
      }
    }).finally(leave)

    /** Reads the next page; undefined if the read failed, the answer to send if the position has expired. */
    async function nextPage(after: number): Promise<FeedPage | HttpError | undefined> {
      try {
        return await watch.read({ after, limit: 200, filter })
      } catch (error) {
        const answer = asHttpError(error, logger)
        if (answer instanceof HttpError && answer.status === 410) return answer
        logger.warn({ err: error }, 'reading the feed failed, the stream tries again')
        return undefined
      }
    }
  }
}

/** The events of items, as text that all streams share. */
const events = new WeakMap<FeedItem, string>()

function toEvent(item: FeedItem): string {
  const known = events.get(item)
  if (known !== undefined) return known
  const event = `id: ${item.position}\ndata: ${JSON.stringify(item)}\n\n`
  events.set(item, event)
  return event
}
