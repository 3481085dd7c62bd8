import { z } from 'zod'
import { and, between, count, eq, getTableColumns, sql, type SQL, isNotNull } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import { arrivals } from '../domain/arrivals-schema.ts'
import { deliveryIdRange } from '../domain/delivery.ts'
import { deliveries, inbox, requests, attempts } from '../domain/schema.ts'
import { a, d } from './aliases.ts'
import { readWithin } from './deadline.ts'
import { deliveryStates, type DeliveryFilters, type Paging } from './filters.ts'
import { whenKeyMatched } from './keys.ts'
import {
  afterCursor,
  encodeCursor,
  equals,
  given,
  limitOf,
  microsOf,
  newestFirst,
  sourceNameOf,
  toPage,
  within,
  type Order,
  type Page,
  type Range,
} from './page.ts'
import { type AnyId, cameOften, deliveryFound, deliveryMeasured, foundRows, searchedRows } from './search.ts'

export const deliverySchema = z
  .object({
    id: z.guid(),
    webhook_id: z.string(),
    request_id: z.guid().nullable(),
    status: z.enum(['OK', 'ERROR', 'CANCELED']).nullable().describe('The status in the notification.'),
    state: z.enum(deliveryStates),
    outcome: z.string().describe('The outcome of the last processing; accepted before the first.'),
    reason: z.string().nullable().describe('Why it is parked.'),
    flags: z.array(z.string()),
    model: z.string().nullable(),
    key_name: z.string(),
    signed_at: z.iso.datetime(),
    received_at: z.iso.datetime(),
    skew_seconds: z.int().describe("The receiver's clock minus the signed time."),
    bytes: z.int(),
    arrivals: z.int().describe('How many times it arrived, refused arrivals included.'),
    ack_ms: z.number().nullable().describe('Milliseconds from the first arrival to its answer.'),
    source_name: z.string().describe('The source that signed it.'),
  })
  .meta({ id: 'Delivery' })
export type DeliveryEntry = z.infer<typeof deliverySchema>

const order: Order = { at: d.received_at, id: d.id }

/** Lists deliveries by time of arrival, newest first. */
export async function listDeliveries(
  db: Database,
  query: DeliveryFilters & AnyId & Paging,
): Promise<Page<DeliveryEntry>> {
  const page = pageOf(query)
  const { key_name, since: _since, until: _until, limit: _limit, cursor: _cursor, ...others } = query
  const byKeyAlone = key_name !== undefined && Object.values(others).every((value) => value === undefined)
  const rows = await readWithin(db, async (tx) => {
    if (!byKeyAlone) return selectDeliveries(tx, page)
    // Selecting only the id lets the planner use the index alone. With other columns it reads every row.
    const ids = tx.select({ id: d.id }).from(d).where(page.where).orderBy(newestFirst(order)).limit(page.limit)
    return selectDeliveries(tx, { where: sql`${d.id} = any(array${ids})`, limit: page.limit })
  })
  return toPage(rows, query, toDelivery)
}

/** Lists only ids, each with the cursor after it. Returns one more than the limit if there are more. */
export async function listDeliveryPlaces(
  db: Database,
  query: DeliveryFilters & Paging,
): Promise<{ id: string; cursor: string }[]> {
  const { limit, where } = pageOf(query)
  const places = { id: d.id, micros: microsOf(order.at) }
  const rows = await readWithin(db, async (tx) =>
    tx.select(places).from(d).where(where).orderBy(newestFirst(order)).limit(limit),
  )
  return rows.map((place) => ({ id: place.id, cursor: encodeCursor(place) }))
}

function pageOf({ limit, cursor, ...filters }: DeliveryFilters & AnyId & Paging): Which {
  return { where: and(matching(filters), afterCursor(cursor, order)), limit: limitOf({ limit }) }
}

export async function countDeliveries(db: Database, filters: DeliveryFilters): Promise<number> {
  const rows = await readWithin(db, async (tx) => tx.select({ n: count() }).from(d).where(matching(filters)))
  return one(rows, 'counting deliveries').n
}

/** Reads all delivery ids of a rarely used key; undefined if there are none, or more than `foundRows`. */
export async function idsOfSeldomKey(
  tx: Executor,
  key_name: string,
  until: string | undefined,
): Promise<string[] | undefined> {
  const rows = await tx
    .select({ id: d.id })
    .from(d)
    .where(matching({ key_name, until }))
    .orderBy(newestFirst(order))
    .limit(foundRows + 1)
  return rows.length === 0 || rows.length > foundRows ? undefined : rows.map(({ id }) => id)
}

/** Reads one delivery; undefined if it does not exist. */
export async function findDeliveryEntry(tx: Executor, id: string): Promise<DeliveryEntry | undefined> {
  const [row] = await selectDeliveries(tx, { where: eq(d.id, id), limit: 1 })
  return row && toDelivery(row)
}

/** Reads the newest deliveries of a request. */
export async function deliveriesOf(tx: Executor, requestId: string, limit: number): Promise<DeliveryEntry[]> {
  return (await selectDeliveries(tx, { where: eq(d.request_id, requestId), limit })).map(toDelivery)
}

type Which = { where: SQL | undefined; limit: number }
type DeliveryRow = Awaited<ReturnType<typeof selectDeliveries>>[number]

/**
 * Selects deliveries `d`, newest first. Arrivals and requests are looked up only for the rows on the page, which has
 * the same alias as the table.
 */
async function selectDeliveries(tx: Executor, { where, limit }: Which) {
  const { body, headers: _headers, environment: _environment, ...columns } = getTableColumns(d)
  const bytes = sql<number>`octet_length(${body})`.as('bytes')
  const page = tx
    .select({ ...columns, bytes })
    .from(d)
    .where(where)
    .orderBy(newestFirst(order))
    .limit(limit)
    .as('d')
  const came = tx
    .select({
      arrivals: sql<number>`count(*)::int`.as('arrivals'),
      ack_ms: sql<number | null>`(array_agg(${a.ack_ms} order by ${a.arrived_at}))[1]`.as('ack_ms'),
    })
    .from(a)
    .where(eq(a.delivery_id, d.id))
    .as('came')
  const { parked_reason: reason, source_name, ...shown } = columns
  return tx
    .select({
      ...shown,
      reason,
      source_name: sourceNameOf(source_name).as('source_name'),
      bytes: page.bytes,
      micros: microsOf(order.at),
      state: sql<DeliveryEntry['state']>`case when ${reason} is not null then 'parked'
        when ${isPending} then 'pending' else 'processed' end`,
      outcome: sql<string>`${outcomeShown}`,
      // New names are not longer. Rows of earlier releases may contain longer texts.
      model: sql<string | null>`left(${requests.model}, 255)`,
      arrivals: came.arrivals,
      ack_ms: came.ack_ms,
    })
    .from(page)
    .crossJoinLateral(came)
    .leftJoin(requests, eq(requests.request_id, d.request_id))
    .orderBy(newestFirst(order))
}

function matching(wanted: DeliveryFilters & AnyId): SQL | undefined {
  return and(
    given(wanted.state, stateIs),
    given(wanted.outcome, (outcome) => outcomeIs(outcome, wanted.until)),
    equals(d.parked_reason, wanted.reason),
    // The first condition is that of the partial index.
    given(wanted.flag, (flag) => sql`${d.flags} <> '{}' and ${flag}::text = any(${d.flags})`),
    equals(d.request_id, wanted.request_id),
    given(wanted.webhook_id, hasWebhookId),
    given(wanted.key_name, (name) => and(eq(d.key_name, name), whenKeyMatched(order.at, name))),
    given(wanted.source_name, (name) => isOfSource(name, wanted)),
    given(
      wanted.model,
      (model) =>
        sql`${d.request_id} in (select ${requests.request_id} from ${requests} where ${requests.model} = ${model})`,
    ),
    given(wanted.ids, (ids) => sql`${d.id} = any(${sql.param(ids)}::uuid[])`),
    given(wanted.anyId, deliveryFound),
    deliveryMeasured(wanted),
    given(wanted.min_arrivals, (atLeast) => cameOften(atLeast, wanted)),
    within(order.at, wanted),
  )
}

/**
 * SQL condition: the delivery `d` has the state. The pending ones are read into an array, so that the planner starts
 * from them: they are few, even if the statistics of the inbox are outdated.
 */
function stateIs(state: DeliveryEntry['state']): SQL {
  switch (state) {
    case 'parked':
      return sql`${d.parked_reason} is not null`
    case 'pending':
      return sql`${d.parked_reason} is null and ${d.id} = any(array(select ${inbox.delivery_id} from ${inbox}))`
    case 'processed':
      return sql`${d.parked_reason} is null and not ${isPending}`
    default:
      return state satisfies never
  }
}

/** SQL: the ids of deliveries in a state. For the arrivals of those deliveries. */
export function idsInState(state: DeliveryEntry['state']): SQL {
  return sql`(select ${d.id} from ${deliveries} d where ${stateIs(state)})`
}

/** SQL condition without an index: looked for among the newest deliveries of the time range. */
function isOfSource(name: string, range: Range): SQL {
  const newest = sql`(select ${deliveries.received_at} from ${deliveries}
    where ${within(deliveries.received_at, range) ?? sql`true`}
    order by ${newestFirst({ at: deliveries.received_at, id: deliveries.id })} offset ${searchedRows} limit 1)`
  return sql`${sourceNameOf(d.source_name)} = ${name}
    and ${d.received_at} >= coalesce(${newest}, '-infinity')`
}

/** SQL condition by the id range of a webhook id. The text is compared too, since ids are truncated hashes. */
function hasWebhookId(webhookId: string): SQL | undefined {
  const { first, last } = deliveryIdRange(webhookId)
  return and(between(d.id, first, last), eq(d.webhook_id, webhookId))
}

function toDelivery({ micros: _micros, ...row }: DeliveryRow): DeliveryEntry {
  const skew_seconds = Math.floor(Date.parse(row.received_at) / 1000) - Math.floor(Date.parse(row.signed_at) / 1000)
  return { ...row, skew_seconds }
}

/** SQL condition on a delivery `d`: it waits to be landed. */
const isPending = sql`exists (select from ${inbox} where ${inbox.delivery_id} = ${d.id})`

/** The outcome of the last attempt. A replay without effect does not change the outcome. */
const lastOutcome = sql`(select ${attempts.outcome} from ${attempts} where ${attempts.delivery_id} = ${d.id}
  and (${attempts.outcome}, ${attempts.detail}) is distinct from ('no_effect', 'replay')
  order by ${attempts.attempted_at} desc limit 1)`

/** A delivery without an attempt was parked on arrival, is not processed yet, or landed at the first try. */
const outcomeShown = sql`coalesce(${lastOutcome}, case when ${d.parked_reason} is not null then 'parked'
  when ${isPending} then 'accepted' else 'landed' end)`

/**
 * The newest failed arrivals before `until`. A failed delivery is nearly always sent again within a quarter of an hour.
 */
function newestFailures(outcome: 'refused' | 'unavailable', until: string | undefined): SQL {
  const chosen = and(
    eq(arrivals.outcome, outcome),
    isNotNull(arrivals.delivery_id),
    within(arrivals.arrived_at, { until }),
  )
  return sql`select ${arrivals.delivery_id} from ${arrivals} where ${chosen}
    order by ${arrivals.arrived_at} desc limit ${searchedRows}`
}

function outcomeIs(outcome: NonNullable<DeliveryFilters['outcome']>, until: string | undefined): SQL {
  switch (outcome) {
    case 'parked':
      return sql`${d.parked_reason} is not null`
    case 'accepted':
    case 'duplicate':
      return sql`${d.id} in (select ${a.delivery_id} from ${arrivals} a where ${a.outcome} = ${outcome})`
    case 'refused':
    case 'unavailable':
      return sql`${d.id} = any(array(select distinct delivery_id from (${newestFailures(outcome, until)}) as failures))`
    case 'landed':
      return sql`${outcomeShown} = 'landed'`
    case 'no_effect':
    case 'contradiction':
    case 'key_mismatch':
    case 'source_mismatch':
    case 'hint':
    case 'retry':
      return sql`${lastOutcome} = ${outcome} and ${d.id} in (
        select ${attempts.delivery_id} from ${attempts} where ${attempts.outcome} = ${outcome})`
    default:
      return outcome satisfies never
  }
}
