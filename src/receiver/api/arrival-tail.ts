import type { Request, Response } from 'express'
import { HttpError } from '../../platform/http/http.ts'
import type { Logger } from '../../platform/logger.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { TailedArrival } from '../queries/arrivals.ts'
import { InvalidFilterError, type ArrivalFilters } from '../queries/filters.ts'
import { followArrivals, fromNow } from '../queries/follow-arrivals.ts'
import { decodeCursor, type Place } from '../queries/page.ts'
import { heartbeatMs, writeTo } from './slow-reader.ts'

export type ArrivalTailDeps = { db: Database; clock: () => Date; logger: Logger; signal: AbortSignal }

const maxTails = 20

/** Streams arrivals as they are logged, as server-sent events, until the client disconnects or the process stops. */
export function createArrivalTail(deps: ArrivalTailDeps) {
  let open = 0
  return async (req: Request, res: Response, filters: ArrivalFilters): Promise<void> => {
    const after = resumeAt(req, deps.clock())
    if (open >= maxTails)
      throw new HttpError(503, 'too_many_waiting', `${maxTails} tails are open already`, {
        headers: { 'retry-after': '5' },
      })
    open += 1
    const closed = new AbortController()
    const end = () => closed.abort()
    res.once('close', end)
    deps.signal.addEventListener('abort', end)
    try {
      res.set({ 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' })
      res.write(': tailing\nretry: 2000\n\n')
      await follow(deps, { res, filters, after, closed: closed.signal, end })
    } finally {
      open -= 1
      deps.signal.removeEventListener('abort', end)
      res.end()
    }
  }
}

/**
 * Returns the place after which to start: the browser's Last-Event-ID after a lost connection, otherwise the present.
 */
function resumeAt(req: Request, now: Date): Place {
  const last = req.get('last-event-id')
  if (!last) return fromNow(now)
  try {
    return decodeCursor(last, 'bigint')
  } catch (error) {
    throw error instanceof InvalidFilterError
      ? new InvalidFilterError('Last-Event-ID', 'is not an id of this stream')
      : error
  }
}

type Follow = { res: Response; filters: ArrivalFilters; after: Place; closed: AbortSignal; end: () => void }

async function follow(deps: ArrivalTailDeps, { res, filters, after, closed, end }: Follow): Promise<void> {
  let wroteAt = performance.now()
  const write = async (text: string) => {
    wroteAt = performance.now()
    await writeTo(res, text, { signal: closed }).catch(() => {
      if (!closed.aborted) deps.logger.info('closed a tail of arrivals: its reader accepted no data for too long')
      end()
      res.destroy()
    })
  }
  for await (const { fresh, isCut } of followArrivals(deps, { filters, after, closed })) {
    if (fresh.length > 0) await write(fresh.map(toEvent).join(''))
    if (isCut) await write(': not all arrivals are shown: more came than fit\n\n')
    if (performance.now() - wroteAt > heartbeatMs) await write(': still here\n\n')
  }
}

function toEvent({ arrival, cursor }: TailedArrival): string {
  return `id: ${cursor}\ndata: ${JSON.stringify(arrival)}\n\n`
}
