import { z } from 'zod'
import { desc, eq, getTableColumns } from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import { generations } from '../domain/generations-schema.ts'
import { polls } from '../domain/on-call-schema.ts'
import { maxPageItems } from '../domain/page-limits.ts'
import { results } from '../domain/results-schema.ts'
import { media } from '../domain/schema.ts'
import type { StuckAfter } from '../reconciling/due.ts'
import { arrivalSchema, arrivalsOfDeliveries } from './arrivals.ts'
import { readWithin } from './deadline.ts'
import { deliveriesOf, deliverySchema } from './deliveries.ts'
import { attemptSchema, attemptsOf } from './delivery-detail.ts'
import { findRequest, mediaKindSchema, requestSchema, type Request } from './requests.ts'

export const mediaSchema = z
  .object({
    kind: mediaKindSchema,
    position: z.int(),
    url: z.string(),
    original_url: z.string().nullable(),
    width: z.int().nullable(),
    height: z.int().nullable(),
    duration_seconds: z.number().nullable(),
    archived_url: z.string().nullable().describe('Where the copy is; null without a copy.'),
    bytes: z.int().nullable(),
    content_type: z.string().nullable(),
    sha256: z.string().nullable().describe('The SHA-256 of the copy, which `GET /media/{sha256}` returns.'),
    archived_at: z.iso.datetime().nullable(),
    archive_error: z.string().nullable().describe('Why there will be no copy.'),
  })
  .meta({ id: 'Media' })
export type Media = z.infer<typeof mediaSchema>

const at = z.iso.datetime()

export const pollSchema = z
  .object({
    key_name: z.string().nullable().describe('Null if no call was made.'),
    outcome: z.string().describe('The outcome of the call; postponed if none was made.'),
    detail: z.string().nullable(),
  })
  .meta({ id: 'Poll' })
type PollEntry = z.infer<typeof pollSchema> & { polled_at: string }

const submitSchema = z
  .object({
    idempotency_key: z.guid(),
    state: z.enum(['pending', 'submitted', 'refused', 'expired']),
    attempts: z.int().describe('The number of attempts to send it to the provider.'),
    last_error: z.string().nullable(),
    created_at: at.describe('When the receiver got the submit.'),
    input: z.unknown(),
  })
  .meta({ id: 'Submit' })
export type Submit = z.infer<typeof submitSchema>

/** One event in the history of a request. */
export const timelineEntrySchema = z
  .discriminatedUnion('kind', [
    z.object({ at, kind: z.literal('submit') }),
    z.object({ at, kind: z.literal('tracked') }),
    z.object({ at, kind: z.literal('provider_created') }),
    z.object({ at, kind: z.literal('provider_completed') }),
    z.object({ at, kind: z.literal('arrival'), arrival: arrivalSchema }),
    z.object({ at, kind: z.literal('delivery'), delivery: deliverySchema }),
    z.object({ at, kind: z.literal('attempt'), attempt: attemptSchema.extend({ delivery_id: z.guid() }) }),
    z.object({ at, kind: z.literal('poll'), poll: pollSchema }),
    z.object({ at, kind: z.literal('landed'), status: z.string(), source: z.string().nullable() }),
    z.object({ at, kind: z.literal('media'), media: mediaSchema }),
  ])
  .meta({ id: 'TimelineEntry' })
export type TimelineEntry = z.infer<typeof timelineEntrySchema>

export const requestDetailSchema = requestSchema
  .extend({
    output: z.unknown().describe('The output in the shape of the result endpoint; null without one.'),
    submit: submitSchema.nullable().describe('The submit, if it came through the receiver.'),
    media: z.array(mediaSchema),
    timeline: z.array(timelineEntrySchema),
  })
  .meta({ id: 'RequestDetail' })
export type RequestDetail = z.infer<typeof requestDetailSchema>

/** Reads one request with its timeline of deliveries, arrivals, polls and media; undefined if it is not known. */
export async function readRequest(
  db: Database,
  requestId: string,
  overdue: StuckAfter,
): Promise<RequestDetail | undefined> {
  return readWithin(db, async (tx) => {
    const request = await findRequest(tx, requestId, overdue)
    if (!request) return undefined
    const [stored] = await tx.select({ output: results.output }).from(results).where(eq(results.request_id, requestId))
    const parts = await partsOf(tx, request)
    const { submit, media } = parts
    return { ...request, output: stored?.output ?? null, submit, media, timeline: timelineOf(request, parts) }
  })
}

type Parts = Awaited<ReturnType<typeof partsOf>>

async function partsOf(tx: Executor, { id, landed_at }: Request) {
  const deliveries = await deliveriesOf(tx, id, maxPageItems)
  const deliveryIds = deliveries.map((delivery) => delivery.id)
  return {
    deliveries,
    submit: await submitOf(tx, id),
    media: await mediaOf(tx, id),
    arrivals: await arrivalsOfDeliveries(tx, deliveryIds, maxPageItems),
    attempts: await attemptsOf(tx, deliveries, landed_at),
    polls: await pollsOf(tx, id),
  }
}

async function pollsOf(tx: Executor, requestId: string): Promise<PollEntry[]> {
  const { key_name, outcome, detail, polled_at } = polls
  return tx
    .select({ key_name, outcome, detail, polled_at })
    .from(polls)
    .where(eq(polls.request_id, requestId))
    .orderBy(desc(polled_at))
    .limit(maxPageItems)
}

export async function mediaOf(tx: Executor, requestId: string): Promise<Media[]> {
  const { request_id, ...item } = getTableColumns(media)
  return tx
    .select(item)
    .from(media)
    .where(eq(request_id, requestId))
    .orderBy(media.kind, media.position)
    .limit(maxPageItems)
}

async function submitOf(tx: Executor, requestId: string): Promise<Submit | null> {
  const { idempotency_key, state, attempts, last_error, created_at, input } = generations
  const [submit] = await tx
    .select({ idempotency_key, state, attempts, last_error, created_at, input })
    .from(generations)
    .where(eq(generations.request_id, requestId))
    .orderBy(created_at)
    .limit(1)
  return submit ?? null
}

function timelineOf(request: Request, parts: Parts): TimelineEntry[] {
  const { submit, media, deliveries, arrivals, attempts, polls } = parts
  const { created_at, completed_at, polled_at, poll_outcome, poll_detail, landed_at, confirmed_at } = request
  const entries: TimelineEntry[] = submit === null ? [] : [{ at: submit.created_at, kind: 'submit' }]
  entries.push({ at: request.tracked_at, kind: 'tracked' })
  if (created_at !== null) entries.push({ at: created_at, kind: 'provider_created' })
  if (completed_at !== null) entries.push({ at: completed_at, kind: 'provider_completed' })
  for (const arrival of arrivals) entries.push({ at: arrival.arrived_at, kind: 'arrival', arrival })
  for (const delivery of deliveries) entries.push({ at: delivery.received_at, kind: 'delivery', delivery })
  for (const { polled_at: at, ...poll } of polls) entries.push({ at, kind: 'poll', poll })
  if (polled_at !== null && poll_outcome === 'postponed') {
    entries.push({ at: polled_at, kind: 'poll', poll: { key_name: null, outcome: 'postponed', detail: poll_detail } })
  }
  for (const attempt of attempts) entries.push({ at: attempt.attempted_at, kind: 'attempt', attempt })
  if (landed_at !== null)
    entries.push({ at: landed_at, kind: 'landed', status: request.status, source: request.source })
  // The time of each media row is not stored, so all get the time of the result.
  for (const item of media)
    entries.push({ at: confirmed_at ?? landed_at ?? request.tracked_at, kind: 'media', media: item })
  // The sort is stable: events of the same instant stay in the order of cause and effect.
  return entries.toSorted((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0))
}
