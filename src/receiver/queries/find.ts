import { z } from 'zod'
import { or, sql } from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import { quarantine } from '../domain/arrivals-schema.ts'
import { generations } from '../domain/generations-schema.ts'
import { shortListItems } from '../domain/page-limits.ts'
import type { StuckAfter } from '../reconciling/due.ts'
import { arrivalSchema, listArrivals, type ArrivalEntry } from './arrivals.ts'
import { QueryTimeoutError, readWithin } from './deadline.ts'
import { deliverySchema, listDeliveries } from './deliveries.ts'
import { textFilter, type ArrivalFilters, type RequestFilters } from './filters.ts'
import { newestFirst } from './page.ts'
import { listRequests, requestSchema } from './requests.ts'
import { uuidRange } from './search.ts'

export const findFiltersSchema = z.strictObject({
  q: textFilter
    .min(2)
    .describe(
      'An id or its beginning: of a request, a delivery, a webhook or an Idempotency-Key, including ids ' +
        'stated by refused bodies. Or the whole id of a request at its source, if it is not a uuid. Or a ' +
        'complete value in the metadata of one of the latest 20,000 requests: the search goes from the newest ' +
        'to the oldest, for one second.',
    ),
})

export const foundSchema = z
  .object({
    requests: z.array(requestSchema).describe('Requests found by id.'),
    by_metadata: z.array(requestSchema).describe('Requests found by a value of their metadata.'),
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
    missing: z
      .array(z.string())
      .describe('The kinds whose search took too long and was stopped. The other kinds were searched.'),
  })
  .meta({ id: 'Found' })
export type Found = z.infer<typeof foundSchema>

/**
 * Searches deliveries, requests and refused arrivals by an id or a metadata value. A kind whose search takes too long
 * is left out and named in `missing`. Throws QueryTimeoutError if all of them do.
 */
export async function find(db: Database, { q }: { q: string }, when: StuckAfter): Promise<Found> {
  const missing: string[] = []
  let searched = 0
  const search = async <T>(kind: string, read: () => Promise<T[]>): Promise<T[]> => {
    searched += 1
    try {
      return await read()
    } catch (error) {
      if (!(error instanceof QueryTimeoutError) || missing.push(kind) === searched) throw error
      return []
    }
  }
  const isId = q.length >= 4
  const isUuid = uuidRange(q).length > 0
  const requests = async (filters: RequestFilters & { value?: string }) =>
    (await listRequests(db, { ...filters, limit: shortListItems }, when)).data
  const [byExternalId, asRequests, by_metadata, submits, deliveries, arrivals, quarantined] = await Promise.all([
    search('requests', () => requests({ external_id: q })),
    isUuid ? search('requests', () => requests({ q })) : [],
    search('by_metadata', () => requests({ value: q })),
    search('submits', () => readWithin(db, (tx) => submitsOf(tx, q))),
    isId ? search('deliveries', async () => (await listDeliveries(db, { q, limit: shortListItems })).data) : [],
    isId ? search('arrivals', () => failedArrivals(db, { q })) : [],
    search('quarantined', () => readWithin(db, (tx) => quarantinedOf(tx, q))),
  ])
  const all = { requests: [...byExternalId, ...asRequests], by_metadata, submits, deliveries, arrivals, quarantined }
  return { ...all, missing: [...new Set(missing)] }
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

async function failedArrivals(db: Database, filters: ArrivalFilters): Promise<ArrivalEntry[]> {
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
    .where(or(range && sql`${request_id} ${range}`, sql`starts_with(${webhook_id}, ${q})`))
    .orderBy(newestFirst({ at: arrived_at, id }))
    .limit(shortListItems)
}
