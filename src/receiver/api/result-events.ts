import { setTimeout as delay } from 'node:timers/promises'
import type { Response } from 'express'
import type { Logger } from '../../platform/logger.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { Media } from '../queries/request-detail.ts'
import { findResultWithMedia, type ResultRow } from '../queries/results.ts'
import { createEventStreams } from './event-stream.ts'

export type ResultEventsDeps = { db: Database; logger: Logger; signal: AbortSignal }

type Known = { result: ResultRow; media: Media[] }
type Event = { name: 'queued' | 'progress' | 'first_media' | 'complete' | 'failed'; data: object }

/**
 * Streams the states of one request as server-sent events until it has ended: `queued` and `progress` at each change,
 * `first_media` with the first link, then `complete` or `failed`. A reconnected client gets the present state.
 */
export function createResultEvents({ db, logger, signal }: ResultEventsDeps) {
  const stream = createEventStreams({ max: 100, what: 'streams of results', logger, signal })
  return (res: Response, first: Known): Promise<void> =>
    stream(res, async (write, closed) => {
      const sent = new Map<string, string>()
      for (let known = first; !closed.aborted;) {
        const events = eventsOf(known)
        for (const event of events) if (isNew(sent, event)) await write(textOf(event))
        if (events.some(({ name }) => name === 'complete' || name === 'failed')) break
        // Progress is not part of the feed, so each stream reads its own row.
        await delay(1000, undefined, { signal: closed })
        const { result, media } = await findResultWithMedia(db, first.result.request_id)
        if (result === null) break
        known = { result, media }
      }
    })
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
