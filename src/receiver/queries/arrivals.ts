import { setTimeout as delay } from 'node:timers/promises'
import { z } from 'zod'
import type { Logger } from '../../platform/logger.ts'
import { statementRows } from '../../platform/postgres/at-most.ts'
import {
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
import { a } from './aliases.ts'
import { readWithin } from './deadline.ts'
import { idsInState, idsOfSeldomKey } from './deliveries.ts'
import type { ArrivalFilters, Paging } from './filters.ts'
import { whenKeyMatched } from './keys.ts'
import {
  afterCursor,
  encodeCursor,
  equals,
  given,
  instantOf,
  limitOf,
  microsOf,
  sourceNameOf,
  toPage,
  within,
  type Order,
  type Page,
  type Place,
} from './page.ts'
import { type AnyId, arrivalFound, arrivalMeasured, isAmong, isOfTheNewest, placesWhere } from './search.ts'

export const arrivalSchema = z
  .object({
    id: z.int(),
    arrived_at: z.iso.datetime(),
    outcome: z.enum(arrivalOutcomes),
    reason: z.string().nullable(),
    status: z.int().describe("The status of the receiver's HTTP answer."),
    webhook_id: z.string().nullable().describe('The id that the arrival states. If it was refused, do not trust it.'),
    delivery_id: z.guid().nullable().describe('The id of the delivery, also where none was stored.'),
    request_id: z.guid().nullable(),
    key_name: z.string().nullable(),
    remote: z.string().nullable(),
    bytes: z.int().nullable(),
    skew_seconds: z.int().nullable().describe("The receiver's clock minus the signed time."),
    ack_ms: z.number(),
    folded: z.int().describe('How many similar arrivals this row counts besides itself.'),
    source_name: z.string().describe('The source of the path.'),
    parked_reason: z.string().nullable().describe('Why its delivery is parked now, perhaps since a later try.'),
  })
  .meta({ id: 'Arrival' })
export type ArrivalEntry = z.infer<typeof arrivalSchema>

/** Null for an arrival that was not stored: its id is only what the arrival states. */
const parkedReason = sql<string | null>`case when ${a.outcome} in ('accepted', 'duplicate', 'parked') then (
  select ${deliveries.parked_reason} from ${deliveries} where ${deliveries.id} = ${a.delivery_id}) end`
const shown = {
  ...getTableColumns(a),
  source_name: sourceNameOf(a.source_name).as('source_name'),
  parked_reason: parkedReason,
}

const order: Order = { at: a.arrived_at, id: a.id }
const newestFirst = [desc(a.arrived_at), desc(a.id)]

/** Lists the arrival log, newest first. */
export async function listArrivals(
  db: Database,
  { limit, cursor, ...filters }: ArrivalFilters & AnyId & Paging,
): Promise<Page<ArrivalEntry>> {
  const { key_name, until } = filters
  const rows = await readWithin(db, async (tx) => {
    const seldom = key_name === undefined ? undefined : await isOfSeldomKey(tx, key_name, until)
    return tx
      .select({ ...shown, micros: microsOf(order.at) })
      .from(a)
      .where(and(matching(filters), afterCursor(cursor, order), seldom))
      .orderBy(...newestFirst)
      .limit(limitOf({ limit }))
  })
  return toPage(rows, { limit }, ({ micros: _micros, ...arrival }) => arrival)
}

/** Reads the newest arrivals in the transaction of another read. */
export async function newestArrivals(tx: Executor, limit: number): Promise<ArrivalEntry[]> {
  return tx
    .select(shown)
    .from(a)
    .orderBy(...newestFirst)
    .limit(limit)
}

/** An arrival, with the cursor of its place. */
export type TailedArrival = { arrival: ArrivalEntry; cursor: string }

/** Reads the first `limit` arrivals of these deliveries, refused ones included, oldest first. */
export async function arrivalsOfDeliveries(
  tx: Executor,
  deliveryIds: readonly string[],
  limit: number,
): Promise<ArrivalEntry[]> {
  return tx
    .select(shown)
    .from(a)
    .where(inArray(a.delivery_id, [...deliveryIds]))
    .orderBy(a.arrived_at, a.id)
    .limit(limit)
}

function matching(wanted: ArrivalFilters & AnyId): SQL | undefined {
  return and(
    given(wanted.state, (state) => sql`${a.delivery_id} in ${idsInState(state)}`),
    given(wanted.outcome, outcomeIs),
    equals(a.reason, wanted.reason),
    given(wanted.request_id, isOfRequest),
    given(wanted.webhook_id, claimsWebhookId),
    given(wanted.key_name, (name) => and(eq(a.key_name, name), whenKeyMatched(order.at, name))),
    given(wanted.source_name, (name) => and(sql`${sourceNameOf(a.source_name)} = ${name}`, isOfTheNewest(wanted))),
    given(wanted.anyId, arrivalFound),
    arrivalMeasured(wanted),
    within(order.at, wanted),
  )
}

function outcomeIs(outcome: ArrivalEntry['outcome']): SQL | undefined {
  const always = outcome === 'accepted' || outcome === 'duplicate'
  // All other outcomes have a reason and are rare, so the index by reason serves them.
  return and(eq(a.outcome, outcome), always ? undefined : isNotNull(a.reason))
}

/**
 * SQL condition: the arrival is of the request. It goes through the request's deliveries, which also finds refused
 * arrivals of them. Authentic arrivals that could not be stored have no delivery and are looked up separately.
 */
function isOfRequest(requestId: string): SQL {
  const its = sql`select ${deliveries.id} from ${deliveries} where ${deliveries.request_id} = ${requestId}`
  return isAmong(sql`${placesWhere(sql`${arrivals.delivery_id} = any(array(${its}))`)}
    union ${placesWhere(sql`${arrivals.outcome} = 'unavailable' and ${arrivals.request_id} = ${requestId}`)}`)
}

/**
 * SQL condition: the arrivals of a rarely used key; undefined for a key that is used often. The log has no index by
 * key, so they are found by the key's deliveries, and unstored ones by their outcome.
 */
async function isOfSeldomKey(tx: Executor, key_name: string, until: string | undefined): Promise<SQL | undefined> {
  const ids = await idsOfSeldomKey(tx, key_name, until)
  return given(ids, (known) =>
    isAmong(sql`${placesWhere(sql`${arrivals.delivery_id} = any(${sql.param(known)}::uuid[])`)}
    union ${placesWhere(sql`${arrivals.outcome} = 'unavailable' and ${arrivals.key_name} = ${key_name}`)}`),
  )
}

/** SQL condition by the id range of a webhook id. Arrivals refused before their body was read have no delivery id. */
function claimsWebhookId(webhookId: string): SQL | undefined {
  const { first, last } = deliveryIdRange(webhookId)
  return and(or(between(a.delivery_id, first, last), isNull(a.delivery_id)), eq(a.webhook_id, webhookId))
}

type FollowDeps = { db: Database; clock: () => Date; logger: Pick<Logger, 'warn'> }

/** The arrivals logged since the previous round. `isCut`: there were more than the limit. */
type Round = { fresh: TailedArrival[]; isCut: boolean }

/**
 * Yields arrivals after a place as they are logged, oldest first, each once. A round may be empty. Ends when `closed`
 * aborts. The log is written in batches, so a row may appear after others that arrived later. The look back is
 * therefore bounded by id, that is by time of writing.
 */
export async function* followArrivals(
  { db, clock, logger }: FollowDeps,
  { filters, after, closed }: { filters: ArrivalFilters; after: Place; closed: AbortSignal },
): AsyncGenerator<Round, void, undefined> {
  const floors: number[] = []
  let sent = new Set<number>()
  // The first round of a resumed stream starts at the place where the stream was interrupted.
  let notBefore = Number(after.micros) / 1000
  const isAfter = sql`(${a.arrived_at}, ${a.id}) > (${instantOf(after.micros)}, ${after.id}::bigint)`
  while (!closed.aborted) {
    const started = performance.now()
    // A statement that commits late is still found this many rounds later.
    const idFloor = floors.length < 6 ? 0 : (floors.shift() ?? 0)
    let round: Round = { fresh: [], isCut: false }
    try {
      const looked = clock()
      const since = new Date(Math.max(notBefore, Date.parse(filters.since ?? '1970-01-01'))).toISOString()
      const rows = await readWithin(db, (tx) =>
        tx
          .select({ ...shown, micros: microsOf(order.at) })
          .from(a)
          .where(and(matching({ ...filters, since }), gt(a.id, idFloor), isAfter))
          .orderBy(...newestFirst)
          .limit(statementRows),
      )
      const found = rows
        .toReversed()
        .map(({ micros, ...arrival }) => ({ arrival, cursor: encodeCursor({ micros, id: String(arrival.id) }) }))
      const fresh = found.filter(({ arrival }) => !sent.has(arrival.id))
      round = { fresh, isCut: found.length === statementRows }
      floors.push(Math.max(floors.at(-1) ?? 0, ...found.map(({ arrival }) => arrival.id)))
      sent = new Set([...sent, ...fresh.map(({ arrival }) => arrival.id)].filter((id) => id > idFloor))
      // An arrival is logged when it has been answered. A slow sender can delay that by this long.
      notBefore = looked.getTime() - 35_000
    } catch (error) {
      logger.warn({ err: error }, 'tailing the arrival log failed, the next round tries again')
    }
    yield round
    // The pause limits an open tail to a quarter of a connection's time.
    await delay(Math.max(200, 3 * (performance.now() - started)), undefined, { signal: closed }).catch(() => {})
  }
}

/** Returns the present place: only later arrivals follow it. */
export function fromNow(now: Date): Place {
  return { micros: String(now.getTime() * 1000), id: '0' }
}
