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
  return (res: Response, first: FeedPage, filter: FeedFilter = {}): Promise<void> => {
    return stream(res, async (write, closed) => {
      let after = 0
      const send = async (page: FeedPage) => {
        const text = textOf(page, after)
        if (text !== '') await write(text)
        after = page.next_after
      }
      await send(first)
      for await (const _grown of watch.growths(closed)) {
        // Changes that arrive during this pause share the next read.
        await delay(20, undefined, { signal: closed })
        let page: FeedPage | HttpError | undefined
        do {
          page = await nextPage(after)
          if (page instanceof HttpError) return write(`event: error\ndata: ${JSON.stringify(errorBody(page))}\n\n`)
          if (page === undefined) await delay(1000, undefined, { signal: closed })
          else await send(page)
        } while (!closed.aborted && (page === undefined || after < page.head))
      }
    })

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

function textOf({ data, next_after }: FeedPage, after: number): string {
  if (data.length > 0) return data.map(toEvent).join('')
  // An id without data moves Last-Event-ID over the changes that do not match.
  return next_after > after ? `id: ${next_after}\n\n` : ''
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
