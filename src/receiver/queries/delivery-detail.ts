import { isUtf8 } from 'node:buffer'
import { z } from 'zod'
import { eq, getTableColumns, inArray, sql } from '../../platform/postgres/drizzle.ts'
import { claimsOfRow } from '../../platform/postgres/lease.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import { toleranceSeconds } from '../../wire/signature.ts'
import { sha256Hex } from '../domain/delivery.ts'
import { maxPageItems } from '../domain/page-limits.ts'
import { attempts, deliveries, inbox, requests } from '../domain/schema.ts'
import { arrivalSchema, arrivalsOfDeliveries } from './arrivals.ts'
import { readWithin } from './deadline.ts'
import { deliverySchema, findDeliveryEntry, type DeliveryEntry } from './deliveries.ts'

export const attemptSchema = z
  .object({ attempted_at: z.iso.datetime(), outcome: z.string(), detail: z.string().nullable() })
  .meta({ id: 'Attempt' })
type Attempt = z.infer<typeof attemptSchema>

export const deliveryDetailSchema = deliverySchema
  .extend({
    headers: z.record(z.string(), z.string()).describe('As received, without signatures and credentials.'),
    body_base64: z.string().describe('The signed bytes.'),
    body_text: z.string().nullable().describe('The body as text; null if it is not UTF-8.'),
    body_sha256: z.string(),
    verification: z.object({
      key_name: z.string().describe('The key whose secret matched.'),
      t: z.int().describe('The signed time, in Unix seconds.'),
      skew_seconds: z.int(),
      window_seconds: z.int(),
    }),
    attempts: z.array(attemptSchema),
    failures: z.int().describe('For a pending delivery: how many rounds failed because of its content.'),
    claims: z.int().describe('For a pending delivery: how many times it was claimed for processing.'),
    trouble: z.string().nullable().describe('Of a pending one: why it could not be landed, if not for its content.'),
    due_at: z.iso.datetime().nullable().describe('Of a pending one: when it may be claimed, or the end of its lease.'),
    arrival_log: z.array(arrivalSchema),
  })
  .meta({ id: 'DeliveryDetail' })
export type DeliveryDetail = z.infer<typeof deliveryDetailSchema>

/** Reads one delivery with all details; undefined if it does not exist. */
export async function findDelivery(db: Database, id: string): Promise<DeliveryDetail | undefined> {
  return readWithin(db, async (tx) => {
    const delivery = await findDeliveryEntry(tx, id)
    const [stored] = await tx
      .select({
        headers: sql`${deliveries.headers} - 'x-service-signature'`.mapWith(deliveries.headers),
        body: deliveries.body,
        waiting: getTableColumns(inbox),
        landed_at: requests.landed_at,
      })
      .from(deliveries)
      .leftJoin(inbox, eq(inbox.delivery_id, deliveries.id))
      .leftJoin(requests, eq(requests.request_id, deliveries.request_id))
      .where(eq(deliveries.id, id))
    if (!delivery || !stored) return undefined
    const { waiting } = stored
    const arrivals = await arrivalsOfDeliveries(tx, [id], maxPageItems)
    const attempts = await attemptsOf(tx, [delivery], stored.landed_at)
    return {
      ...delivery,
      headers: stored.headers,
      body_base64: stored.body.toString('base64'),
      body_text: isUtf8(stored.body) ? stored.body.toString('utf8') : null,
      body_sha256: sha256Hex(stored.body),
      verification: {
        key_name: delivery.key_name,
        t: Date.parse(delivery.signed_at) / 1000,
        skew_seconds: delivery.skew_seconds,
        window_seconds: toleranceSeconds,
      },
      attempts: attempts.map(({ attempted_at, outcome, detail }) => ({ attempted_at, outcome, detail })),
      failures: waiting?.failures ?? 0,
      claims: claimsOfRow(waiting?.claims ?? 0),
      trouble: waiting?.trouble ?? null,
      due_at: waiting?.due_at ?? null,
      arrival_log: arrivals,
    }
  })
}

/**
 * Reads the rounds of processing of these deliveries of one request, oldest first: stored attempts, and landings at the
 * first try, which have no row.
 */
export async function attemptsOf(
  tx: Executor,
  deliveries: readonly Pick<DeliveryEntry, 'id' | 'state'>[],
  landedAt: string | null,
): Promise<(Attempt & { delivery_id: string })[]> {
  const ids = deliveries.map(({ id }) => id)
  const kept = await tx
    .select()
    .from(attempts)
    .where(inArray(attempts.delivery_id, ids))
    .orderBy(attempts.attempted_at)
    .limit(maxPageItems)
  if (landedAt === null) return kept
  // Landings at the first try: processed deliveries whose only rows in `attempts`, if any, are of later replays.
  // Postgres decides this, since only the first `maxPageItems` attempts were read.
  const processed = sql.param(deliveries.flatMap(({ id, state }) => (state === 'processed' ? [id] : [])))
  const ends = await tx.execute<{ id: string }>(sql`
    select id from unnest(${processed}::uuid[]) as id
    where (select 1 from ${attempts} where ${attempts.delivery_id} = id
      and (${attempts.detail} is distinct from 'replay' or ${attempts.attempted_at} = ${landedAt}) limit 1) is null`)
  const atFirstTry = ends.map(({ id }) => {
    return { delivery_id: id, attempted_at: landedAt, outcome: 'landed', detail: null }
  })
  return [...kept, ...atFirstTry].toSorted((a, b) => Date.parse(a.attempted_at) - Date.parse(b.attempted_at))
}
