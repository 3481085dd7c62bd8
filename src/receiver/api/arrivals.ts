import type { Request } from 'express'
import { z } from 'zod'
import { verifyQuarantine } from '../on-call/verify-quarantine.ts'
import type { ReceiverDeps } from '../program.ts'
import { arrivalSchema, listArrivals, type TailedArrival, followArrivals, fromNow } from '../queries/arrivals.ts'
import { arrivalListSchema, parseFilters, quarantineListSchema, type ArrivalFilters } from '../queries/filters.ts'
import { pageSchema, decodeCursor, type Place } from '../queries/page.ts'
import { listQuarantine, quarantinedSchema } from '../queries/quarantine.ts'
import { createEventStreams, type Send } from './event-stream.ts'
import { auditedCall, type Operation, filtered, onePage } from './operation.ts'

const verifiedSchema = z.object({ checked: z.int(), accepted: z.int(), refused: z.int() }).meta({ id: 'Verified' })

/** The calls for the log of HTTP arrivals and for the quarantine. */
export function arrivalOperations(deps: ReceiverDeps): Operation[] {
  const { keys } = deps
  const stream = createEventStreams({ max: 20, what: 'tails', ...deps })
  const list: Operation = {
    method: 'get',
    path: '/arrivals',
    operationId: 'listArrivals',
    summary: 'The log of HTTP arrivals, newest first',
    description:
      'With `Accept: text/event-stream`, streams new arrivals. Each event is one arrival; send its id as ' +
      'Last-Event-ID to resume.',
    requestParams: { query: arrivalListSchema },
    answers: { 200: { description: 'One page, or the stream', schema: pageSchema(arrivalSchema), streams: true } },
    errors: ['invalid_filter', 'too_many_waiting'],
    answer: async (req, res) => {
      const { limit, cursor, ...filters } = parseFilters(arrivalListSchema, req.query)
      if (req.accepts(['json', 'text/event-stream']) === 'text/event-stream')
        return stream(res, sendArrivals(deps, filters, resumeAt(req, deps.clock())))
      return res.json(await listArrivals(deps.db, { ...filters, limit, cursor }))
    },
  }
  const quarantine = filtered('/quarantine', {
    operationId: 'listQuarantine',
    summary: 'Refused arrivals that are kept for another verification, newest first',
    filters: quarantineListSchema,
    answer: onePage(quarantinedSchema),
    read: (wanted) => listQuarantine(deps.db, keys(), wanted),
  })
  const verify: Operation = {
    method: 'post',
    path: '/quarantine/verify',
    operationId: 'verifyQuarantine',
    summary: 'Verify refused arrivals with the present secrets, and accept the authentic ones',
    answers: {
      200: { description: 'How many were checked, accepted and refused', schema: verifiedSchema },
    },
    answer: async (req, res) => {
      const work = () => verifyQuarantine(deps)
      res.json(await auditedCall(deps, req, { action: 'verify_quarantine', detailOf: (verified) => verified, work }))
    },
  }
  return [list, quarantine, verify]
}

function sendArrivals(deps: ReceiverDeps, filters: ArrivalFilters, after: Place): Send {
  return async (write, closed) => {
    for await (const { fresh, isCut } of followArrivals(deps, { filters, after, closed })) {
      if (fresh.length > 0) await write(fresh.map(toEvent).join(''))
      if (isCut) await write(': not all arrivals are shown: more came than fit\n\n')
    }
  }
}

/** The place after which to start: the browser's Last-Event-ID after a lost connection, otherwise the present. */
function resumeAt(req: Request, now: Date): Place {
  const last = req.get('last-event-id')
  return last ? decodeCursor(last, 'bigint', ['Last-Event-ID', 'is not an id of this stream']) : fromNow(now)
}

function toEvent({ arrival, cursor }: TailedArrival): string {
  return `id: ${cursor}\ndata: ${JSON.stringify(arrival)}\n\n`
}
