import { setTimeout as delay } from 'node:timers/promises'
import type { Response } from 'express'
import { HttpError } from '../../platform/http/http.ts'
import type { Logger } from '../../platform/logger.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { Media } from '../queries/request-detail.ts'
import { findResultWithMedia, type ResultRow } from '../queries/results.ts'
import { maxStreams } from './feed-stream.ts'
import { gone } from './operation.ts'
import { heartbeatMs, writeTo } from './slow-reader.ts'

export type ResultEventsDeps = { db: Database; logger: Logger; signal: AbortSignal }

type Known = { result: ResultRow; media: Media[] }
type Event = { name: 'queued' | 'progress' | 'first_media' | 'complete' | 'failed'; data: object }

/**
 * Streams the states of one request as server-sent events until it has ended: `queued` and `progress` at each change,
 * `first_media` with the first link, then `complete` or `failed`. A reconnected client gets the present state.
 */
export function createResultEvents({ db, logger, signal }: ResultEventsDeps) {
  let open = 0
  return async (res: Response, first: Known): Promise<void> => {
    if (open >= maxStreams)
      throw new HttpError(503, 'too_many_waiting', `${maxStreams} streams of results are open already`, {
        headers: { 'retry-after': '5' },
      })
    open += 1
    const closed = AbortSignal.any([gone(res), signal])
    const { requestId, write } = { requestId: first.result.request_id, write: writerTo(res, closed) }
    try {
      res.set({ 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' })
      await write('retry: 2000\n\n')
      const sent = new Map<string, string>()
      for (let known: Known | undefined = first; known !== undefined && !closed.aborted;) {
        const events = eventsOf(known)
        for (const event of events) if (isNew(sent, event)) await write(textOf(event))
        if (events.some(({ name }) => name === 'complete' || name === 'failed')) break
        // Progress is not part of the feed, so each stream reads its own row.
        await delay(1000, undefined, { signal: closed })
        known = await read(requestId)
      }
    } catch (error) {
      if (!closed.aborted) logger.info({ err: error, request_id: requestId }, 'a stream of a result ended early')
      res.destroy()
    } finally {
      open -= 1
      res.end()
    }
  }

  async function read(requestId: string): Promise<Known | undefined> {
    const { result, media } = await findResultWithMedia(db, requestId)
    return result === null ? undefined : { result, media }
  }
}

/** Returns a function that writes to the response. A comment is sent after a silence of `heartbeatMs`. */
function writerTo(res: Response, closed: AbortSignal): (text: string) => Promise<void> {
  let wroteAt = performance.now()
  const timer = setInterval(() => {
    if (performance.now() - wroteAt >= heartbeatMs) res.write(': still here\n\n')
  }, heartbeatMs)
  closed.addEventListener('abort', () => clearInterval(timer))
  res.once('finish', () => clearInterval(timer))
  return async (text) => {
    wroteAt = performance.now()
    await writeTo(res, text, { signal: closed })
  }
}

/** Returns the events that describe the present state of the request, in order. */
function eventsOf({ result, media }: Known): Event[] {
  const { request_id, status, progress, queue_position, landed_at, media_complete } = result
  if (landed_at !== null && status !== 'COMPLETED') return [{ name: 'failed', data: { result } }]
  const started: Event[] =
    status === 'IN_QUEUE'
      ? [{ name: 'queued', data: { request_id, queue_position } }]
      : [{ name: 'progress', data: { request_id, progress: progress ?? 0 } }]
  const found: Event[] = media.length === 0 ? [] : [{ name: 'first_media', data: { request_id, media } }]
  if (landed_at === null || !media_complete) return [...started, ...found]
  return [...started, ...found, { name: 'complete', data: { result, media } }]
}

/** Records an event. Returns true if it differs from the last event of its name; `first_media` is sent once. */
function isNew(sent: Map<string, string>, event: Event): boolean {
  const before = sent.get(event.name)
  sent.set(event.name, textOf(event))
  return before === undefined || (event.name !== 'first_media' && before !== textOf(event))
}

function textOf({ name, data }: Event): string {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`
}
