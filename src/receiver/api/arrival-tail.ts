import type { Request, Response } from 'express'
import type { Logger } from '../../platform/logger.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { TailedArrival } from '../queries/arrivals.ts'
import { InvalidFilterError, type ArrivalFilters } from '../queries/filters.ts'
import { followArrivals, fromNow } from '../queries/follow-arrivals.ts'
import { decodeCursor, type Place } from '../queries/page.ts'
import { createEventStreams } from './event-stream.ts'

export type ArrivalTailDeps = { db: Database; clock: () => Date; logger: Logger; signal: AbortSignal }

/** Streams arrivals as they are logged, as server-sent events, until the client disconnects or the process stops. */
export function createArrivalTail(deps: ArrivalTailDeps) {
  const stream = createEventStreams({ max: 20, what: 'tails', ...deps })
  return (req: Request, res: Response, filters: ArrivalFilters): Promise<void> => {
    const after = resumeAt(req, deps.clock())
    return stream(res, async (write, closed) => {
      for await (const { fresh, isCut } of followArrivals(deps, { filters, after, closed })) {
        if (fresh.length > 0) await write(fresh.map(toEvent).join(''))
        if (isCut) await write(': not all arrivals are shown: more came than fit\n\n')
      }
    })
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

function toEvent({ arrival, cursor }: TailedArrival): string {
  return `id: ${cursor}\ndata: ${JSON.stringify(arrival)}\n\n`
}
