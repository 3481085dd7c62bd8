import { setTimeout as delay } from 'node:timers/promises'
import type { Response } from 'express'
import { errorBody, HttpError } from '../../platform/http/http.ts'
import type { Logger } from '../../platform/logger.ts'
import type { FeedFilter } from '../feeding/feed-filter.ts'
import type { FeedItem, FeedPage } from '../queries/feed.ts'
import type { FeedWatch } from './feed-watch.ts'
import { asHttpError, gone } from './operation.ts'
import { heartbeatMs, writeTo } from './slow-reader.ts'

export type FeedStreamDeps = { watch: FeedWatch; logger: Logger; signal: AbortSignal }

/** Streams that may be open in this process, of each kind. */
export const maxStreams = 100

/** Streams changes from a first page on, as server-sent events, until the client disconnects or the process stops. */
export function createFeedStream({ watch, logger, signal }: FeedStreamDeps) {
  let open = 0
  return async (res: Response, first: FeedPage, filter: FeedFilter = {}): Promise<void> => {
    if (open >= maxStreams)
      throw new HttpError(503, 'too_many_waiting', `${maxStreams} streams of the feed are open already`, {
        headers: { 'retry-after': '5' },
      })
    open += 1
    const closed = AbortSignal.any([gone(res), signal])
    let wake = () => {}
    const { leave } = await watch
      .join(() => wake())
      .catch((error: unknown) => {
        open -= 1
        throw error
      })
    try {
      res.set({ 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' })
      res.write(': the feed\nretry: 2000\n\n')
      let page = first
      let passed = 0
      while (!closed.aborted) {
        const woken = new Promise<void>((resolve) => {
          wake = resolve
        })
        if (page.data.length > 0) await writeTo(res, page.data.map(toEvent).join(''), { signal: closed })
        // An id without data moves Last-Event-ID over the changes that do not match.
        else if (page.next_after > passed) await writeTo(res, `id: ${page.next_after}\n\n`, { signal: closed })
        passed = page.next_after
        const next = await nextPage(page.next_after)
        if (next === 'over') break
        if (next === undefined) await delay(1000, undefined, { signal: closed })
        else if (next.data.length === 0 && next.next_after >= next.head) await untilWoken(woken)
        if (next !== undefined) page = next
      }
    } catch (error) {
      // The client disconnected, or accepted no data for too long.
      if (!closed.aborted) logger.info({ err: error }, 'a stream of the feed ended early')
      res.destroy()
    } finally {
      open -= 1
      leave()
      res.end()
    }

    async function untilWoken(woken: Promise<void>): Promise<void> {
      const beat = new AbortController()
      const silent = delay(heartbeatMs, 'silent' as const, { signal: AbortSignal.any([beat.signal, closed]) }).catch(
        () => undefined,
      )
      if ((await Promise.race([woken, silent])) === 'silent') await writeTo(res, ': still here\n\n', { signal: closed })
      beat.abort()
      // Changes that arrive during this pause share the next read.
      await delay(20, undefined, { signal: closed })
    }

    /** Reads the next page; undefined if the read failed, `over` if the position has expired. */
    async function nextPage(after: number): Promise<FeedPage | 'over' | undefined> {
      try {
        return await watch.read({ after, limit: 200, filter })
      } catch (error) {
        const answer = asHttpError(error, logger)
        if (answer instanceof HttpError && answer.status === 410) {
          await writeTo(res, `event: error\ndata: ${JSON.stringify(errorBody(answer))}\n\n`, { signal: closed })
          return 'over'
        }
        logger.warn({ err: error }, 'reading the feed failed, the stream tries again')
        return undefined
      }
    }
  }
}

/** The text of items, shared by all streams. */
const events = new WeakMap<FeedItem, string>()

function toEvent(item: FeedItem): string {
  const known = events.get(item)
  if (known !== undefined) return known
  const event = `id: ${item.position}\ndata: ${JSON.stringify(item)}\n\n`
  events.set(item, event)
  return event
}
