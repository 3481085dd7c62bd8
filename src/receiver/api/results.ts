import type { Response } from 'express'
import { z } from 'zod'
import type { ReceiverDeps } from '../program.ts'
import { parseFilters } from '../queries/filters.ts'
import { findResult, resultRowSchema } from '../queries/results.ts'
import { responses, unknown, uuidParam, waitSchemaFor, type Operation } from './operation.ts'
import { createResultWaiters, type ResultWaiters } from './result-waiters.ts'

const querySchema = waitSchemaFor('Seconds to wait for a terminal state.')

/** What became of a request, and waiting for it. */
export function resultOperations(deps: ReceiverDeps): Operation[] {
  const { db, settings, logger, signal } = deps
  const waiters = createResultWaiters({ db, databaseUrl: settings.databaseUrl, logger, signal })
  return [
    {
      method: 'get',
      path: '/results/{request_id}',
      document: {
        operationId: 'showResult',
        summary: 'The row of results',
        description:
          'With `wait`, answers as soon as it is terminal, and after that many seconds with the row as it is.',
        requestParams: { path: z.object({ request_id: z.guid() }), query: querySchema },
        responses: responses(
          { 200: { description: 'The row', schema: resultRowSchema } },
          'invalid_filter',
          'not_found',
          'too_many_waiting',
        ),
      },
      answer: async (req, res) => {
        const { wait = 0 } = parseFilters(querySchema, req.query)
        const requestId = uuidParam(req, 'request_id')
        let row = await findResult(db, requestId)
        if (!row) throw unknown(req)
        if (row.landed_at === null && wait > 0) {
          await untilTerminal({ res, waiters, deps, requestId, seconds: wait })
          if (res.closed) return
          row = (await findResult(db, requestId)) ?? row
        }
        res.json(row)
      },
    },
  ]
}

type Wait = { res: Response; waiters: ResultWaiters; deps: ReceiverDeps; requestId: string; seconds: number }

/** Ends when the request is terminal, the time is over, the client is gone, or we stop. */
async function untilTerminal({ res, waiters, deps: { db, awaited, signal }, requestId, seconds }: Wait): Promise<void> {
  const { promise: over, resolve } = Promise.withResolvers<void>()
  const end = () => resolve()
  const timer = setTimeout(end, seconds * 1000)
  signal.addEventListener('abort', end)
  res.once('close', end)
  const noLongerAwaited = awaited.add(requestId)
  try {
    const { leave } = await waiters.join(requestId, end)
    try {
      // It may have landed between the first look and the joining.
      const row = await findResult(db, requestId)
      if (row?.landed_at === null && !signal.aborted && !res.closed) await over
    } finally {
      leave()
    }
  } finally {
    noLongerAwaited()
    clearTimeout(timer)
    signal.removeEventListener('abort', end)
    res.off('close', end)
  }
}
