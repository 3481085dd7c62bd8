import { z } from 'zod'
import {
  alias,
  and,
  between,
  desc,
  eq,
  getTableColumns,
  gt,
  inArray,
  isNotNull,
  isNull,
  or,
  sql,
  type SQL,
} from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import { arrivalOutcomes, arrivals } from '../domain/arrivals-schema.ts'
import { deliveryIdRange } from '../domain/delivery.ts'
import { deliveries } from '../domain/schema.ts'
import { whenKeyMatched } from '../intake/key-uses.ts'
import { readWithin } from './deadline.ts'
import { idsInState, idsOfSeldomKey } from './deliveries.ts'
import type { ArrivalFilters, Paging } from './filters.ts'
import {
  afterCursor,
  encodeCursor,
  equals,
  instantOf,
  limitOf,
  microsOf,
  toPage,
  within,
  type Order,
  type Page,
  type Place,
} from './page.ts'
import { arrivalFound, arrivalMeasured, isAmong } from './search.ts'

/** Conditions of other files call the listed arrivals so too. */
const a = alias(arrivals, 'a')

export const arrivalSchema = z
  .object({
    id: z.int(),
    arrived_at: z.iso.datetime(),
    outcome: z.enum(arrivalOutcomes),
    reason: z.string().nullable(),
    status: z.int().meta({ description: 'Of our HTTP answer.' }),
    webhook_id: z
      .string()
      .nullable()
      .meta({ description: 'As it was claimed; nothing of a refused arrival is trusted.' }),
    delivery_id: z.guid().nullable().meta({ description: 'Of the delivery that it is, or would have been.' }),
    request_id: z.guid().nullable(),
    key_name: z.string().nullable(),
    remote: z.string().nullable(),
    bytes: z.int().nullable(),
    skew_seconds: z.int().nullable().meta({ description: 'Our clock minus the signed time.' }),
    ack_ms: z.number(),
    folded: z.int().meta({ description: 'How many like arrivals this one stands for besides itself.' }),
  })
  .meta({ id: 'Arrival' })
export type ArrivalEntry = z.infer<typeof arrivalSchema>

const order: Order = { at: a.arrived_at, id: a.id }
const newestFirst = [desc(a.arrived_at), desc(a.id)]

/** The log, newest first. */
export async function listArrivals(
  db: Database,
  { limit, cursor, ...filters }: ArrivalFilters & Paging,
): Promise<Page<ArrivalEntry>> {
  const { key_name, until } = filters
  const rows = await readWithin(db, async (tx) => {
    const seldom = key_name === undefined ? undefined : await isOfSeldomKey(tx, { key_name, until })
    return tx
      .select({ ...getTableColumns(a), micros: microsOf(order.at) })
      .from(a)
      .where(and(...matching(filters), afterCursor(cursor, order), seldom))
      .orderBy(...newestFirst)
      .limit(limitOf({ limit }))
  })
  return toPage(rows, { limit }, ({ micros: _micros, ...arrival }) => arrival)
}

/** The newest of all, inside another read. */
export async function newestArrivals(tx: Executor, limit: number): Promise<ArrivalEntry[]> {
  return tx
    .select()
    .from(a)
    .orderBy(...newestFirst)
    .limit(limit)
}

/** What has been logged since a place: `after` is what a reader has seen, the floor what was looked at already. */
export type Since = { after: Place; notBefore: Date; idFloor: number; limit: number }

/** An arrival, and the cursor that names its place. */
export type TailedArrival = { arrival: ArrivalEntry; cursor: string }

/**
 * For the live tail, oldest first; the newest `limit` where there are more. The
 * log is written in batches, so a row may appear behind others that arrived
 * later: what bounds the look back is when a row was written, by its id.
 */
export async function arrivalsSince(
  db: Database,
  filters: ArrivalFilters,
  { after, notBefore, idFloor, limit }: Since,
): Promise<TailedArrival[]> {
  const since =
    filters.since !== undefined && Date.parse(filters.since) > notBefore.getTime()
      ? filters.since
      : notBefore.toISOString()
  const place = sql`(${instantOf(after.micros)}, ${after.id}::bigint)`
  const isAfter = sql`(${a.arrived_at}, ${a.id}) > ${place}`
  const rows = await readWithin(db, (tx) =>
    tx
      .select({ ...getTableColumns(a), micros: microsOf(order.at) })
      .from(a)
      .where(and(...matching({ ...filters, since }), gt(a.id, idFloor), isAfter))
      .orderBy(...newestFirst)
      .limit(limit),
  )
  return rows
    .toReversed()
    .map(({ micros, ...arrival }) => ({ arrival, cursor: encodeCursor({ micros, id: String(arrival.id) }) }))
}

/** Every arrival of these deliveries, oldest first, those that were refused included. */
export async function arrivalsOfDeliveries(
  tx: Executor,
  deliveryIds: readonly string[],
  limit: number,
): Promise<ArrivalEntry[]> {
  return tx
    .select()
    .from(a)
    .where(inArray(a.delivery_id, [...deliveryIds]))
    .orderBy(a.arrived_at, a.id)
    .limit(limit)
}

function matching({
  state,
  outcome,
  reason,
  request_id,
  webhook_id,
  key_name,
  q,
  min_ack_ms,
  min_skew_seconds,
  since,
  until,
}: ArrivalFilters): (SQL | undefined)[] {
  return [
    state && sql`${a.delivery_id} in ${idsInState(state)}`,
    outcome && outcomeIs(outcome),
    equals(a.reason, reason),
    request_id === undefined ? undefined : isOfRequest(request_id),
    webhook_id === undefined ? undefined : claimsWebhookId(webhook_id),
    key_name === undefined ? undefined : and(eq(a.key_name, key_name), whenKeyMatched(order.at, key_name)),
    q === undefined ? undefined : arrivalFound({ q, since, until }),
    arrivalMeasured({ min_ack_ms, min_skew_seconds, since, until }),
    within(order.at, { since, until }),
  ]
}

function outcomeIs(outcome: ArrivalEntry['outcome']): SQL | undefined {
  const always = outcome === 'accepted' || outcome === 'duplicate'
  // All others have a reason, and are few.
  return and(eq(a.outcome, outcome), always ? undefined : isNotNull(a.reason))
}

/**
 * Through its deliveries, so that arrivals of them that were refused are found
 * too; and what was authentic but could never be stored, and so is no delivery.
 */
function isOfRequest(requestId: string): SQL {
  const its = sql`select ${deliveries.id} from ${deliveries} where ${deliveries.request_id} = ${requestId}`
  // offset 0: with the order in sight, the planner would walk the whole log by time to the end.
  return isAmong(sql`
    (select ${arrivals.arrived_at}, ${arrivals.id} from ${arrivals}
      where ${arrivals.delivery_id} = any(array(${its})) offset 0)
    union (select ${arrivals.arrived_at}, ${arrivals.id} from ${arrivals}
      where ${arrivals.outcome} = 'unavailable' and ${arrivals.request_id} = ${requestId} offset 0)`)
}

/**
 * Led by the deliveries of a key that has few, to which come those that could not be stored: the log itself has no
 * index by key.
 */
async function isOfSeldomKey(
  tx: Executor,
  { key_name, until }: { key_name: string; until: string | undefined },
): Promise<SQL | undefined> {
  const ids = await idsOfSeldomKey(tx, { key_name, until })
  if (!ids) return undefined
  const [places] = await tx.execute<{ times: string[] | null; ids: string[] | null }>(sql`
    select array_agg(arrived_at::text) as times, array_agg(id::text) as ids from (
      (select ${arrivals.arrived_at}, ${arrivals.id} from ${arrivals}
        where ${arrivals.delivery_id} = any(${sql.param(ids)}::uuid[]) offset 0)
      union all (select ${arrivals.arrived_at}, ${arrivals.id} from ${arrivals}
        where ${arrivals.outcome} = 'unavailable' and ${arrivals.key_name} = ${key_name} offset 0)) as p`)
  return sql`${a.arrived_at} = any(${sql.param(places?.times ?? [])}::text[]::timestamptz[])
    and ${a.id} = any(${sql.param(places?.ids ?? [])}::bigint[])`
}

/** By the range of ids that one webhook id has; what was refused before its body was read has no such id. */
function claimsWebhookId(webhookId: string): SQL | undefined {
  const { first, last } = deliveryIdRange(webhookId)
  return and(or(between(a.delivery_id, first, last), isNull(a.delivery_id)), eq(a.webhook_id, webhookId))
}
