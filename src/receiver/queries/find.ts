import { z } from 'zod'
import { eq, or, sql } from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import { quarantine } from '../domain/arrivals-schema.ts'
import { generations } from '../domain/generations-schema.ts'
import { shortListItems } from '../domain/page-limits.ts'
import type { StuckAfter } from '../reconciling/due.ts'
import { arrivalSchema, listArrivals, type ArrivalEntry } from './arrivals.ts'
import { readWithin } from './deadline.ts'
import { deliverySchema, listDeliveries } from './deliveries.ts'
import { textFilter, type ArrivalFilters, type RequestFilters } from './filters.ts'
import { newestFirst } from './page.ts'
import { listRequests, requestSchema } from './requests.ts'
import { type AnyId, uuidRange } from './search.ts'

export const findFiltersSchema = z.strictObject({
  q: textFilter.min(2).describe('An id of any kind, or the beginning of a uuid.'),
})

export const foundSchema = z
  .object({
    requests: z.array(requestSchema),
    submits: z.array(
      z.object({
        id: z.guid().describe('The Idempotency-Key.'),
        state: z.string(),
        model: z.string(),
        request_id: z.guid().nullable(),
        created_at: z.iso.datetime(),
      }),
    ),
    deliveries: z.array(deliverySchema),
    arrivals: z.array(arrivalSchema).describe('Arrivals that were refused or not acknowledged.'),
    quarantined: z.array(
      z.object({
        id: z.int(),
        arrived_at: z.iso.datetime(),
        reason: z.string(),
        webhook_id: z.string().nullable(),
        request_id: z.guid().nullable().describe('The id that the body states. It is not trusted.'),
      }),
    ),
  })
  .meta({ id: 'Found' })
export type Found = z.infer<typeof foundSchema>

/** Finds requests, submits, deliveries and refused arrivals by an id. */
export async function find(db: Database, { q }: { q: string }, when: StuckAfter): Promise<Found> {
  const requests = async (filters: RequestFilters & AnyId) =>
    (await listRequests(db, { ...filters, limit: shortListItems }, when)).data
  const isBeginning = uuidRange(q).length > 0
  const [byExternalId, byId, submits, { data: deliveries }, arrivals, quarantined] = await Promise.all([
    requests({ external_id: q }),
    isBeginning ? requests({ anyId: q }) : [],
    readWithin(db, (tx) => submitsOf(tx, q)),
    listDeliveries(db, { anyId: q, limit: shortListItems }),
    failedArrivals(db, { anyId: q }),
    readWithin(db, (tx) => quarantinedOf(tx, q)),
  ])
  return { requests: [...byExternalId, ...byId], submits, deliveries, arrivals, quarantined }
}

/** The webhooks that name a request which may not be tracked. */
export type Mentions = Pick<Found, 'deliveries' | 'arrivals' | 'quarantined'>

/** Finds the webhooks that name this request id. The content of a refused one is not trusted. */
export async function findMentions(db: Database, requestId: string): Promise<Mentions> {
  const [{ data: deliveries }, arrivals, quarantined] = await Promise.all([
    listDeliveries(db, { request_id: requestId, limit: shortListItems }),
    failedArrivals(db, { request_id: requestId }),
    readWithin(db, (tx) => quarantinedOf(tx, requestId)),
  ])
  return { deliveries, arrivals, quarantined }
}

async function failedArrivals(db: Database, filters: ArrivalFilters & AnyId): Promise<ArrivalEntry[]> {
  const list = (outcome: 'refused' | 'unavailable') => listArrivals(db, { ...filters, outcome, limit: shortListItems })
  const pages = await Promise.all([list('refused'), list('unavailable')])
  return pages.flatMap(({ data }) => data)
}

async function submitsOf(tx: Executor, q: string): Promise<Found['submits']> {
  const [range] = uuidRange(q)
  if (range === undefined) return []
  const { idempotency_key: id, state, model, request_id, created_at } = generations
  return tx
    .select({ id, state, model, request_id, created_at })
    .from(generations)
    .where(sql`${id} ${range} or ${request_id} ${range}`)
    .limit(shortListItems)
}

async function quarantinedOf(tx: Executor, q: string): Promise<Found['quarantined']> {
  const [range] = uuidRange(q)
  const { id, arrived_at, reason, webhook_id, request_id } = quarantine
  return tx
    .select({ id, arrived_at, reason, webhook_id, request_id })
    .from(quarantine)
    .where(or(range && sql`${request_id} ${range}`, eq(webhook_id, q)))
    .orderBy(newestFirst({ at: arrived_at, id }))
    .limit(shortListItems)
}
