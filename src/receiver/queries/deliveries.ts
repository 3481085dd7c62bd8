import { z } from 'zod'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import * as arriving from '../domain/arrivals-schema.ts'
import { deliveryIdRange } from '../domain/delivery.ts'
import * as schema from '../domain/schema.ts'
import { whenKeyMatched } from '../intake/key-uses.ts'
import { readWithin } from './deadline.ts'
import { deliveryStates, type DeliveryFilters, type Paging } from './filters.ts'
import {
  afterCursor,
  allOf,
  encodeCursor,
  isoAlways,
  limitOf,
  microsOf,
  toPage,
  within,
  type Order,
  type Page,
  type Place,
} from './page.ts'
import { cameOften, deliveryFound, deliveryMeasured } from './search.ts'

const arrivals = columnsOf(arriving.arrivals)
const a = columnsOf(arriving.arrivals, 'a')
const t = columnsOf(schema.attempts, 't')
const deliveries = columnsOf(schema.deliveries)
const d = columnsOf(schema.deliveries, 'd')
const inbox = columnsOf(schema.inbox)
const i = columnsOf(schema.inbox, 'i')
const r = columnsOf(schema.requests, 'r')

export const deliverySchema = z
  .object({
    id: z.guid(),
    webhook_id: z.string(),
    request_id: z.guid().nullable(),
    status: z.enum(['OK', 'ERROR']).nullable().meta({ description: 'What it says of the request.' }),
    state: z.enum(deliveryStates),
    outcome: z.string().meta({ description: 'Of its last processing; accepted before the first.' }),
    reason: z.string().nullable().meta({ description: 'Why it is parked.' }),
    flags: z.array(z.string()),
    model: z.string().nullable(),
    key_name: z.string(),
    signed_at: z.iso.datetime(),
    received_at: z.iso.datetime(),
    skew_seconds: z.int().meta({ description: 'Our clock minus the signed time.' }),
    bytes: z.int(),
    arrivals: z.int().meta({ description: 'How often it came, refused ones included.' }),
    ack_ms: z.number().nullable().meta({ description: 'From its first arrival to the answer.' }),
  })
  .meta({ id: 'Delivery' })
export type DeliveryEntry = z.infer<typeof deliverySchema>

export type DeliveryRow = RowOf<
  typeof schema.deliveries,
  'id' | 'webhook_id' | 'request_id' | 'status' | 'flags' | 'key_name' | 'signed_at' | 'received_at'
> &
  Pick<DeliveryEntry, 'state' | 'outcome' | 'reason' | 'model' | 'bytes' | 'arrivals' | 'ack_ms'> & { micros: string }

const order: Order = { at: sql`${d.received_at}`, id: sql`${d.id}`, idType: 'uuid' }
const newestFirst = sql`order by ${d.received_at} desc nulls last, ${d.id} desc nulls last`

/** Newest first, by the time of arrival. */
export async function listDeliveries(db: Database, query: DeliveryFilters & Paging): Promise<Page<DeliveryEntry>> {
  return toPage(await deliveryRows(db, query), query, toDelivery)
}

/** The ids alone, each with the cursor that goes on after it; one more than wanted where there are more. */
export async function listDeliveryPlaces(
  db: Database,
  query: DeliveryFilters & Paging,
): Promise<{ id: string; cursor: string }[]> {
  const which = sql`select ${d.id}, ${microsOf(order.at)} as micros from mediadock.deliveries d ${pageOf(query)}`
  const rows = await readWithin(db, (tx) => tx.execute<Place>(which))
  return rows.map((place) => ({ id: place.id, cursor: encodeCursor(place) }))
}

async function deliveryRows(db: Database, query: DeliveryFilters & Paging): Promise<DeliveryRow[]> {
  const page = pageOf(query)
  const { key_name, since: _since, until: _until, limit: _limit, cursor: _cursor, ...others } = query
  const byKeyAlone = key_name !== undefined && Object.values(others).every((value) => value === undefined)
  // The index alone tells which they are, however seldom the key is used; with the rest of the row the planner would read every row.
  const which = byKeyAlone ? sql`where ${d.id} = any(array(select ${d.id} from mediadock.deliveries d ${page}))` : page
  return readWithin(db, (tx) => tx.execute<DeliveryRow>(selectDeliveries(which)))
}

function pageOf({ limit, cursor, ...filters }: DeliveryFilters & Paging): SQL {
  const chosen = allOf([...matching(filters), afterCursor(cursor, order)])
  return sql`where ${chosen} ${newestFirst} limit ${limitOf({ limit })}`
}

export async function countDeliveries(db: Database, filters: DeliveryFilters): Promise<number> {
  const rows = await readWithin(db, (tx) =>
    tx.execute<{ n: string }>(sql`select count(*) as n from mediadock.deliveries d where ${allOf(matching(filters))}`),
  )
  return Number(one(rows, 'counting deliveries').n)
}

const seldom = 500

/** All deliveries of a key that has only a few; undefined where there are more, or none that could lead anywhere. */
export async function idsOfSeldomKey(
  tx: Executor,
  { key_name, until }: Pick<DeliveryFilters, 'until'> & { key_name: string },
): Promise<string[] | undefined> {
  const rows = await tx.execute<RowOf<typeof schema.deliveries, 'id'>>(sql`
    select ${d.id} from mediadock.deliveries d where ${allOf(matching({ key_name, until }))} ${newestFirst} limit ${seldom + 1}`)
  return rows.length === 0 || rows.length > seldom ? undefined : rows.map(({ id }) => id)
}

/** One that is longer is none, and stands whole only at its request. */
const maxModelLength = 255

/** What stands beside a delivery is only looked up for the rows that are shown. */
export function selectDeliveries(which: SQL): SQL {
  return sql`
    with chosen as (
      select ${list(deliveries, 'id', 'webhook_id', 'request_id', 'status', 'parked_reason', 'flags', 'key_name', 'signed_at', 'received_at')},
        octet_length(${deliveries.body}) as bytes
      from mediadock.deliveries d ${which}
    )
    select ${d.id}, ${microsOf(order.at)} as micros, ${list(d, 'webhook_id', 'request_id', 'status')}, ${d.parked_reason} as reason,
      ${list(d, 'flags', 'key_name', 'signed_at', 'received_at')}, d.bytes, left(${r.model}, ${maxModelLength}::int) as model, came.arrivals, came.ack_ms,
      case when ${d.parked_reason} is not null then 'parked'
           when ${isPending} then 'pending' else 'processed' end as state,
      ${outcomeShown} as outcome
    from chosen d
    left join mediadock.requests r on ${r.request_id} = ${d.request_id}
    left join lateral (
      select count(*)::int as arrivals, (array_agg(${a.ack_ms} order by ${a.arrived_at}))[1] as ack_ms
      from mediadock.arrivals a where ${a.delivery_id} = ${d.id}
    ) came on true
    ${newestFirst}`
}

const isPending = sql`exists (select from mediadock.inbox i where ${i.delivery_id} = ${d.id})`

/** A replay without effect takes nothing back. */
const lastOutcome = sql`(select ${t.outcome} from mediadock.attempts t where ${t.delivery_id} = ${d.id} and (${t.outcome}, ${t.detail}) is distinct from ('no_effect', 'replay') order by ${t.attempted_at} desc limit 1)`

/** What has no attempt was not processed yet, or landed at the first. */
const outcomeShown = sql`coalesce(${lastOutcome}, case when ${d.parked_reason} is not null then 'parked' when ${isPending} then 'accepted' else 'landed' end)`

function matching({
  state,
  outcome,
  reason,
  request_id,
  webhook_id,
  key_name,
  model,
  ids,
  q,
  min_ack_ms,
  min_skew_seconds,
  min_arrivals,
  flag,
  since,
  until,
}: DeliveryFilters): (SQL | undefined)[] {
  return [
    state && stateIs(state),
    outcome && outcomeIs(outcome, until),
    reason === undefined ? undefined : sql`${d.parked_reason} = ${reason}`,
    // The first half is that of the index.
    flag === undefined ? undefined : sql`${d.flags} <> '{}' and ${flag}::text = any(${d.flags})`,
    request_id === undefined ? undefined : sql`${d.request_id} = ${request_id}::uuid`,
    webhook_id === undefined ? undefined : hasWebhookId(webhook_id),
    key_name === undefined ? undefined : sql`${d.key_name} = ${key_name} and ${whenKeyMatched(order.at, key_name)}`,
    model === undefined
      ? undefined
      : sql`${d.request_id} in (select ${r.request_id} from mediadock.requests r where ${r.model} = ${model})`,
    ids && sql`${d.id} = any(${sql.param(ids)}::uuid[])`,
    q === undefined ? undefined : deliveryFound({ q, since, until }),
    deliveryMeasured({ min_ack_ms, min_skew_seconds, since, until }),
    min_arrivals === undefined ? undefined : cameOften({ atLeast: min_arrivals, since, until }),
    within(order.at, { since, until }),
  ]
}

/** The state of the delivery `d`. What waits is few, whatever the planner believes of a queue: an array makes it go by it. */
function stateIs(state: DeliveryEntry['state']): SQL {
  switch (state) {
    case 'parked':
      return sql`${d.parked_reason} is not null`
    case 'pending':
      return sql`${d.parked_reason} is null and ${d.id} = any(array(select ${inbox.delivery_id} from mediadock.inbox))`
    case 'processed':
      return sql`${d.parked_reason} is null and not ${isPending}`
    default:
      return state satisfies never
  }
}

/** Deliveries in a state, by id: for the arrivals of such deliveries. */
export function idsInState(state: DeliveryEntry['state']): SQL {
  return sql`(select ${d.id} from mediadock.deliveries d where ${stateIs(state)})`
}

/** A flood of refused arrivals must not make this slow. */
const maxFailures = 20_000

/** Of the end of the range of time: nearly always a delivery comes again within the quarter of an hour after it failed. */
function newestFailures(outcome: 'refused' | 'unavailable', until: string | undefined): SQL {
  const before = until === undefined ? sql`` : sql`and ${arrivals.arrived_at} < ${until}::timestamptz`
  return sql`select ${arrivals.delivery_id} from mediadock.arrivals where ${arrivals.outcome} = ${outcome} and ${arrivals.delivery_id} is not null ${before}
    order by ${arrivals.arrived_at} desc limit ${maxFailures}`
}

function outcomeIs(outcome: NonNullable<DeliveryFilters['outcome']>, until: string | undefined): SQL {
  switch (outcome) {
    case 'parked':
      return sql`${d.parked_reason} is not null`
    case 'accepted':
    case 'duplicate':
      return sql`${d.id} in (select ${a.delivery_id} from mediadock.arrivals a where ${a.outcome} = ${outcome})`
    case 'refused':
    case 'unavailable':
      return sql`${d.id} = any(array(select distinct delivery_id from (${newestFailures(outcome, until)}) as failures))`
    case 'landed':
      return sql`${outcomeShown} = 'landed'`
    case 'confirmed':
    case 'no_effect':
    case 'contradiction':
    case 'key_mismatch':
    case 'retry':
      return sql`${d.id} in (select ${t.delivery_id} from mediadock.attempts t where ${t.outcome} = ${outcome}) and ${lastOutcome} = ${outcome}`
    default:
      return outcome satisfies never
  }
}

/** By the range of ids that one webhook id has; the text decides. */
function hasWebhookId(webhookId: string): SQL {
  const { first, last } = deliveryIdRange(webhookId)
  return sql`${d.id} between ${first}::uuid and ${last}::uuid and ${d.webhook_id} = ${webhookId}`
}

export function toDelivery(row: DeliveryRow): DeliveryEntry {
  const signedAt = isoAlways(row.signed_at)
  const receivedAt = isoAlways(row.received_at)
  return {
    id: row.id,
    webhook_id: row.webhook_id,
    request_id: row.request_id,
    status: row.status,
    state: row.state,
    outcome: row.outcome,
    reason: row.reason,
    flags: row.flags,
    model: row.model,
    key_name: row.key_name,
    signed_at: signedAt,
    received_at: receivedAt,
    skew_seconds: Math.floor(Date.parse(receivedAt) / 1000) - Math.floor(Date.parse(signedAt) / 1000),
    bytes: row.bytes,
    arrivals: row.arrivals,
    ack_ms: row.ack_ms,
  }
}
