import { setTimeout as delay } from 'node:timers/promises'
import type { Request, Response } from 'express'
import { HttpError } from '../../runtime/http/http.ts'
import type { Logger } from '../../runtime/logger.ts'
import type { Database } from '../../runtime/postgres/postgres.ts'
import { arrivalsSince, type TailedArrival } from '../queries/arrivals.ts'
import { InvalidFilterError, type ArrivalFilters } from '../queries/filters.ts'
import { decodeCursor, type Place } from '../queries/page.ts'
import { writeTo } from './slow-reader.ts'

export type ArrivalTailDeps = { db: Database; clock: () => Date; logger: Logger; signal: AbortSignal }

const maxTails = 20
const pauseMs = 200
const heartbeatMs = 15_000
/** More than these at once are too many to read: the newest are shown. */
const maxRowsPerRound = 1000
/** An arrival is logged when it has been answered, which a slow sender can put off for so long. */
const lookBackMs = 35_000
/** Rows of a statement that commits late are still found this many rounds later. */
const overlapRounds = 6

/** Sends arrivals as they are logged, as server-sent events, until the client goes away or we stop. */
export function createArrivalTail(deps: ArrivalTailDeps) {
  let open = 0
  return async (req: Request, res: Response, filters: ArrivalFilters): Promise<void> => {
    const after = resumeAt(req, deps.clock())
    if (open >= maxTails)
      throw new HttpError(503, 'too_many_waiting', `${maxTails} tails are open already`, { headers: { 'retry-after': '5' } })
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

/** A browser that lost the connection names what it saw last; all others begin now. */
function resumeAt(req: Request, now: Date): Place {
  const last = req.get('last-event-id')
  if (!last) return { micros: String(now.getTime() * 1000), id: '0' }
  try {
    return decodeCursor(last, 'bigint')
  } catch (error) {
    throw error instanceof InvalidFilterError ? new InvalidFilterError('Last-Event-ID', 'is not an id of this stream') : error
  }
}

type Follow = { res: Response; filters: ArrivalFilters; after: Place; closed: AbortSignal; end: () => void }

async function follow({ db, clock, logger }: ArrivalTailDeps, { res, filters, after, closed, end }: Follow): Promise<void> {
  const floors: number[] = []
  let sent = new Set<number>()
  // The first look of a resumed stream goes back as far as it must.
  let notBefore = new Date(Number(after.micros) / 1000)
  let wroteAt = performance.now()
  const write = async (text: string) => {
    wroteAt = performance.now()
    await writeTo(res, text, { signal: closed }).catch(() => {
      if (!closed.aborted) logger.info('a tail is ended: its reader took nothing for too long')
      end()
      res.destroy()
    })
  }

  while (!closed.aborted) {
    const started = performance.now()
    const idFloor = floors.length < overlapRounds ? 0 : (floors.shift() ?? 0)
    try {
      const looked = clock()
      const found = await arrivalsSince(db, filters, { after, notBefore, idFloor, limit: maxRowsPerRound })
      const fresh = found.filter(({ arrival }) => !sent.has(arrival.id))
      if (fresh.length > 0) await write(fresh.map(toEvent).join(''))
      if (found.length === maxRowsPerRound) await write(': more arrived than is shown\n\n')
      floors.push(Math.max(floors.at(-1) ?? 0, ...found.map(({ arrival }) => arrival.id)))
      sent = new Set([...sent, ...fresh.map(({ arrival }) => arrival.id)].filter((id) => id > idFloor))
      notBefore = new Date(looked.getTime() - lookBackMs)
    } catch (error) {
      logger.warn({ err: error }, 'tailing the arrival log failed, the next round tries again')
    }
    if (performance.now() - wroteAt > heartbeatMs) await write(': still here\n\n')
    // An open tail takes a quarter of a connection's time at most.
    await delay(Math.max(pauseMs, 3 * (performance.now() - started)), undefined, { signal: closed }).catch(() => {})
  }
}

function toEvent({ arrival, cursor }: TailedArrival): string {
  return `id: ${cursor}\ndata: ${JSON.stringify(arrival)}\n\n`
}
