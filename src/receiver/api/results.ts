import { setTimeout as delay } from 'node:timers/promises'
import { z } from 'zod'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { ReceiverDeps } from '../program.ts'
import { parseFilters } from '../queries/filters.ts'
import {
  findResult,
  findResultWithMedia,
  resultRowSchema,
  terminalOf,
  type ResultWithMedia,
} from '../queries/results.ts'
import { createEventStreams, type Send } from './event-stream.ts'
import { type FeedWatch, createWaiters } from './feed-watch.ts'
import { gone, unknown, uuidParam, waitSchemaFor, type Operation } from './operation.ts'

const querySchema = waitSchemaFor('Seconds to wait for a terminal state.')

/** The calls that read one result, wait for it, or stream its states. */
export function resultOperations(deps: ReceiverDeps, watch: FeedWatch): Operation[] {
  const { db, logger, signal, awaited } = deps
  const untilOver = createWaiters({ watch, overOf: (ids) => terminalOf(db, ids), logger, signal })
  const stream = createEventStreams({ max: 100, what: 'streams of results', logger, signal })
  const events: Operation = {
    method: 'get',
    path: '/results/{request_id}/events',
    operationId: 'streamResult',
    summary: 'The states of a request, as server-sent events',
    description:
      'Sends `queued`, `progress` and `first_media`, then `complete` or `failed`, and ends. While a client ' +
      'listens, the receiver polls the provider for progress.',
    requestParams: { path: z.object({ request_id: z.guid() }) },
    answers: { 200: { description: 'The stream', schema: z.string(), type: 'text/event-stream' } },
    errors: ['not_found', 'too_many_waiting'],
    answer: async (req, res) => {
      const requestId = uuidParam(req, 'request_id')
      const known = await findResultWithMedia(db, requestId)
      if (!known) throw unknown(req)
      await stream(res, sendEvents(db, known)).finally(awaited.add(requestId))
    },
  }
  return [
    events,
    {
      method: 'get',
      path: '/results/{request_id}',
      operationId: 'showResult',
      summary: 'One row of `results`',
      description: 'With `wait`, answers once the row is terminal, or after that many seconds with the row as it is.',
      requestParams: { path: z.object({ request_id: z.guid() }), query: querySchema },
      answers: { 200: { description: 'The row', schema: resultRowSchema } },
      errors: ['invalid_filter', 'not_found', 'too_many_waiting'],
      answer: async (req, res) => {
        const { wait = 0 } = parseFilters(querySchema, req.query)
        const requestId = uuidParam(req, 'request_id')
        let row = await findResult(db, requestId)
        if (!row) throw unknown(req)
        if (row.landed_at === null && wait > 0) {
          await untilOver(requestId, { clientGone: gone(res), seconds: wait }).finally(awaited.add(requestId))
          if (res.closed) return
          row = (await findResult(db, requestId)) ?? row
        }
        res.json(row)
      },
    },
  ]
}

type Event = { name: 'queued' | 'progress' | 'first_media' | 'complete' | 'failed'; data: object }

/**
 * Sends the states of one request until it has ended: `queued` and `progress` at each change, `first_media` with the
 * first link, then `complete` or `failed`. A reconnected client gets the present state.
 */
function sendEvents(db: Database, first: ResultWithMedia): Send {
  return async (write, closed) => {
    const sent = new Map<string, string>()
    for (let known: ResultWithMedia | undefined = first; known && !closed.aborted;) {
      const events = eventsOf(known)
      for (const event of events) if (isNew(sent, event)) await write(textOf(event))
      if (events.some(({ name }) => name === 'complete' || name === 'failed')) break
      // Progress is not part of the feed, so each stream reads its own row.
      await delay(1000, undefined, { signal: closed })
      known = await findResultWithMedia(db, first.result.request_id)
    }
  }
}

function eventsOf({ result, media }: ResultWithMedia): Event[] {
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
