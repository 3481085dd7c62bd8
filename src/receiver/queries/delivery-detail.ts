import { z } from 'zod'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { toleranceSeconds } from '../../wire/signature.ts'
import { sha256Hex } from '../domain/delivery.ts'
import * as schema from '../domain/schema.ts'
import { arrivalSchema, arrivalsOfDeliveries } from './arrivals.ts'
import { readWithin } from './deadline.ts'
import { deliverySchema, selectDeliveries, toDelivery, type DeliveryEntry, type DeliveryRow } from './deliveries.ts'
import { iso, isoAlways } from './page.ts'

const attempts = columnsOf(schema.attempts)
const d = columnsOf(schema.deliveries, 'd')
const i = columnsOf(schema.inbox, 'i')
const r = columnsOf(schema.requests, 'r')
const t = columnsOf(schema.attempts, 't')

export const attemptSchema = z
  .object({ attempted_at: z.iso.datetime(), outcome: z.string(), detail: z.string().nullable() })
  .meta({ id: 'Attempt' })
export type Attempt = z.infer<typeof attemptSchema>

export const deliveryDetailSchema = deliverySchema
  .extend({
    headers: z.record(z.string(), z.string()).meta({ description: 'As they came; credentials are left out.' }),
    body_base64: z.string().meta({ description: 'The bytes that were signed.' }),
    body_text: z.string().nullable().meta({ description: 'The same where they are UTF-8.' }),
    body_sha256: z.string(),
    verification: z.object({
      key_name: z.string().meta({ description: 'Whose secret matched.' }),
      t: z.int().meta({ description: 'The signed time, in Unix seconds.' }),
      skew_seconds: z.int(),
      window_seconds: z.int(),
    }),
    attempts: z.array(attemptSchema),
    failures: z.int().meta({ description: 'Rounds that failed for a reason of its own, while it is pending.' }),
    claims: z.int().meta({ description: 'How often it was taken to be processed, while it is pending.' }),
    trouble: z.string().nullable().meta({
      description: 'Why the last round came to nothing, where that was no failure of its own, while it is pending.',
    }),
    due_at: z.iso.datetime().nullable().meta({ description: 'When it is processed next, while it is pending.' }),
    arrival_log: z.array(arrivalSchema),
  })
  .meta({ id: 'DeliveryDetail' })
export type DeliveryDetail = z.infer<typeof deliveryDetailSchema>

const maxRows = 200

type Stored = RowOf<typeof schema.deliveries, 'headers' | 'body'> & {
  due_at: string | null
  failures: number | null
  claims: number | null
  trouble: string | null
  landed_at: string | null
}

/** One delivery with all that is known of it; undefined when there is none. */
export async function findDelivery(db: Database, id: string): Promise<DeliveryDetail | undefined> {
  return readWithin(db, async (tx) => {
    const [row] = await tx.execute<DeliveryRow>(selectDeliveries(sql`where ${d.id} = ${id}::uuid`))
    const [stored] = await tx.execute<Stored>(sql`
      select ${d.headers} - 'x-service-signature' as headers, ${d.body}, ${list(i, 'due_at', 'failures', 'claims', 'trouble')}, ${r.landed_at}
      from mediadock.deliveries d left join mediadock.inbox i on ${i.delivery_id} = ${d.id}
      left join mediadock.requests r on ${r.request_id} = ${d.request_id} where ${d.id} = ${id}::uuid`)
    if (!row || !stored) return undefined
    const arrivals = await arrivalsOfDeliveries(tx, [id], maxRows)
    const delivery = toDelivery(row)
    const attempts = await attemptsOf(tx, [delivery], iso(stored.landed_at))
    return {
      ...delivery,
      headers: stored.headers,
      body_base64: stored.body.toString('base64'),
      body_text: textOf(stored.body),
      body_sha256: sha256Hex(stored.body),
      verification: {
        key_name: delivery.key_name,
        t: Date.parse(delivery.signed_at) / 1000,
        skew_seconds: delivery.skew_seconds,
        window_seconds: toleranceSeconds,
      },
      attempts: attempts.map(({ attempted_at, outcome, detail }) => ({ attempted_at, outcome, detail })),
      failures: stored.failures ?? 0,
      claims: stored.claims ?? 0,
      trouble: stored.trouble,
      due_at: iso(stored.due_at),
      arrival_log: arrivals,
    }
  })
}

export type DeliveryAttempt = Attempt & { delivery_id: string }

/** The rounds of processing of these deliveries of one request, oldest first: what is kept of them, and the ends that have no row. */
export async function attemptsOf(
  tx: Executor,
  deliveries: readonly Pick<DeliveryEntry, 'id' | 'state'>[],
  landedAt: string | null,
): Promise<DeliveryAttempt[]> {
  const ids = sql.param(deliveries.map(({ id }) => id))
  const rows = await tx.execute<
    RowOf<typeof schema.attempts, 'delivery_id' | 'attempted_at' | 'outcome' | 'detail'>
  >(sql`
    select ${list(attempts, 'delivery_id', 'attempted_at', 'outcome', 'detail')} from mediadock.attempts
    where ${attempts.delivery_id} = any(${ids}::uuid[]) order by ${attempts.attempted_at} limit ${maxRows}`)
  const kept = rows.map((row) => ({ ...row, attempted_at: isoAlways(row.attempted_at) }))
  const ends = landedAt === null ? [] : await ordinaryEnds(tx, deliveries, landedAt)
  return [...kept, ...ends].toSorted((a, b) => Date.parse(a.attempted_at) - Date.parse(b.attempted_at))
}

/**
 * The end that has no row: a delivery without one of its own landed its request, at the first try.
 * Asked of Postgres, as not all rows of many deliveries are read.
 */
async function ordinaryEnds(
  tx: Executor,
  deliveries: readonly Pick<DeliveryEntry, 'id' | 'state'>[],
  landedAt: string,
): Promise<DeliveryAttempt[]> {
  const ids = sql.param(deliveries.flatMap(({ id, state }) => (state === 'processed' ? [id] : [])))
  const rows = await tx.execute<{ id: string }>(sql`
    select id from unnest(${ids}::uuid[]) as id
    where (select 1 from mediadock.attempts t where ${t.delivery_id} = id
      and (${t.detail} is distinct from 'replay' or ${t.attempted_at} = ${landedAt}::timestamptz) limit 1) is null`)
  return rows.map(({ id }) => ({
    delivery_id: id,
    attempted_at: landedAt,
    outcome: 'landed',
    detail: null,
  }))
}

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

function textOf(body: Uint8Array): string | null {
  try {
    return decoder.decode(body)
  } catch {
    return null
  }
}
