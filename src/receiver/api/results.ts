import { z } from 'zod'
import type { ReceiverDeps } from '../program.ts'
import { parseFilters } from '../queries/filters.ts'
import { findResult, findResultWithMedia, resultRowSchema, terminalOf } from '../queries/results.ts'
import type { FeedWatch } from './feed-watch.ts'
import { gone, unknown, uuidParam, waitSchemaFor, type Operation } from './operation.ts'
import { createResultEvents } from './result-events.ts'
import { createWaiters } from './waiters.ts'

const querySchema = waitSchemaFor('Seconds to wait for a terminal state.')

/** The calls that read one result, wait for it, or stream its states. */
export function resultOperations(deps: ReceiverDeps, watch: FeedWatch): Operation[] {
  const { db, logger, signal, awaited } = deps
  const untilOver = createWaiters({ watch, overOf: (ids) => terminalOf(db, ids), logger, signal })
  const stream = createResultEvents({ db, logger, signal })
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
      const { result, media } = await findResultWithMedia(db, requestId)
      if (result === null) throw unknown(req)
      await stream(res, { result, media }).finally(awaited.add(requestId))
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
