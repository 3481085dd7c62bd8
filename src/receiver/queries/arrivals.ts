import { z } from 'zod'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import * as arriving from '../domain/arrivals-schema.ts'
import { deliveryIdRange } from '../domain/delivery.ts'
import * as schema from '../domain/schema.ts'
import { loggedColumns } from '../intake/arrival-log.ts'
import { whenKeyMatched } from '../intake/key-uses.ts'
import { readWithin } from './deadline.ts'
import { idsInState, idsOfSeldomKey } from './deliveries.ts'
import { arrivalOutcomes, type ArrivalFilters, type Paging } from './filters.ts'
import {
  afterCursor,
  allOf,
  encodeCursor,
  instantOf,
  isoAlways,
  limitOf,
  microsOf,
  toPage,
  within,
  type Order,
  type Page,
  type Place,
} from './page.ts'
import { arrivalFound, arrivalMeasured, isAmong } from './search.ts'

const arrivals = columnsOf(arriving.arrivals)
const a = columnsOf(arriving.arrivals, 'a')
const deliveries = columnsOf(schema.deliveries)

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

type ArrivalRow = RowOf<typeof arriving.arrivals, 'id' | (typeof loggedColumns)[number]> & {
  outcome: ArrivalEntry['outcome']
  micros: string
}

const order: Order = { at: sql`${a.arrived_at}`, id: sql`${a.id}`, idType: 'bigint' }
const columns = sql`${a.id}, ${microsOf(order.at)} as micros, ${list(a, ...loggedColumns)}`

/** The log, newest first. */
export async function listArrivals(
  db: Database,
  { limit, cursor, ...filters }: ArrivalFilters & Paging,
): Promise<Page<ArrivalEntry>> {
  const { key_name, until } = filters
  const rows = await readWithin(db, async (tx) => {
    const seldom = key_name === undefined ? undefined : await isOfSeldomKey(tx, { key_name, until })
    const chosen = allOf([...matching(filters), afterCursor(cursor, order), seldom])
    return tx.execute<ArrivalRow>(sql`
      select ${columns} from mediadock.arrivals a where ${chosen}
      order by ${a.arrived_at} desc, ${a.id} desc limit ${limitOf({ limit })}`)
  })
  return toPage(rows, { limit }, toArrival)
}

/** The newest of all, inside another read. */
export async function newestArrivals(tx: Executor, limit: number): Promise<ArrivalEntry[]> {
  const rows = await tx.execute<ArrivalRow>(
    sql`select ${columns} from mediadock.arrivals a order by ${a.arrived_at} desc, ${a.id} desc limit ${limit}`,
  )
  return rows.map(toArrival)
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
  const rows = await readWithin(db, (tx) =>
    tx.execute<ArrivalRow>(sql`
      select ${columns} from mediadock.arrivals a
      where ${allOf(matching({ ...filters, since }))} and ${a.id} > ${idFloor}::bigint
        and (${a.arrived_at}, ${a.id}) > (${instantOf(after.micros)}, ${after.id}::bigint)
      order by ${a.arrived_at} desc, ${a.id} desc limit ${limit}`),
  )
  return rows.toReversed().map((row) => ({ arrival: toArrival(row), cursor: encodeCursor(row) }))
}

/** Every arrival of these deliveries, oldest first, those that were refused included. */
export async function arrivalsOfDeliveries(
  tx: Executor,
  deliveryIds: readonly string[],
  limit: number,
): Promise<ArrivalEntry[]> {
  const rows = await tx.execute<ArrivalRow>(sql`
    select ${columns} from mediadock.arrivals a where ${a.delivery_id} = any(${sql.param([...deliveryIds])}::uuid[])
    order by ${a.arrived_at}, ${a.id} limit ${limit}`)
  return rows.map(toArrival)
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
    reason === undefined ? undefined : sql`${a.reason} = ${reason}`,
    request_id === undefined ? undefined : isOfRequest(request_id),
    webhook_id === undefined ? undefined : claimsWebhookId(webhook_id),
    key_name === undefined ? undefined : sql`${a.key_name} = ${key_name} and ${whenKeyMatched(order.at, key_name)}`,
    q === undefined ? undefined : arrivalFound({ q, since, until }),
    arrivalMeasured({ min_ack_ms, min_skew_seconds, since, until }),
    within(order.at, { since, until }),
  ]
}

function outcomeIs(outcome: ArrivalEntry['outcome']): SQL {
  const always = outcome === 'accepted' || outcome === 'duplicate'
  // All others have a reason, and are few.
  return always ? sql`${a.outcome} = ${outcome}` : sql`${a.outcome} = ${outcome} and ${a.reason} is not null`
}

/**
 * Through its deliveries, so that arrivals of them that were refused are found
 * too; and what was authentic but could never be stored, and so is no delivery.
 */
function isOfRequest(requestId: string): SQL {
  // offset 0: with the order in sight, the planner would walk the whole log by time to the end.
  return isAmong(sql`
    (select ${arrivals.arrived_at}, ${arrivals.id} from mediadock.arrivals
      where ${arrivals.delivery_id} = any(array(select ${deliveries.id} from mediadock.deliveries where ${deliveries.request_id} = ${requestId}::uuid)) offset 0)
    union (select ${arrivals.arrived_at}, ${arrivals.id} from mediadock.arrivals where ${arrivals.outcome} = 'unavailable' and ${arrivals.request_id} = ${requestId}::uuid offset 0)`)
}

/** Led by the deliveries of a key that has few, to which come those that could not be stored: the log itself has no index by key. */
async function isOfSeldomKey(
  tx: Executor,
  { key_name, until }: { key_name: string; until: string | undefined },
): Promise<SQL | undefined> {
  const ids = await idsOfSeldomKey(tx, { key_name, until })
  if (!ids) return undefined
  const [places] = await tx.execute<{ times: string[] | null; ids: string[] | null }>(sql`
    select array_agg(arrived_at::text) as times, array_agg(id::text) as ids from (
      (select ${arrivals.arrived_at}, ${arrivals.id} from mediadock.arrivals where ${arrivals.delivery_id} = any(${sql.param(ids)}::uuid[]) offset 0)
      union all (select ${arrivals.arrived_at}, ${arrivals.id} from mediadock.arrivals where ${arrivals.outcome} = 'unavailable' and ${arrivals.key_name} = ${key_name} offset 0)) as p`)
  return sql`${a.arrived_at} = any(${sql.param(places?.times ?? [])}::text[]::timestamptz[]) and ${a.id} = any(${sql.param(places?.ids ?? [])}::bigint[])`
}

/** By the range of ids that one webhook id has; what was refused before its body was read has no such id. */
function claimsWebhookId(webhookId: string): SQL {
  const { first, last } = deliveryIdRange(webhookId)
  return sql`(${a.delivery_id} between ${first}::uuid and ${last}::uuid or ${a.delivery_id} is null) and ${a.webhook_id} = ${webhookId}`
}

function toArrival({ micros: _micros, ...row }: ArrivalRow): ArrivalEntry {
  return { ...row, id: Number(row.id), arrived_at: isoAlways(row.arrived_at) }
}
