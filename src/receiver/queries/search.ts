import { alias, and, type Column, gte, lte, or, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { arrivals } from '../domain/arrivals-schema.ts'
import { deliveryIdRange } from '../domain/delivery.ts'
import { deliveries } from '../domain/schema.ts'
import { newestFirst, within } from './page.ts'

/** The arrivals and deliveries that are listed. */
const a = alias(arrivals, 'a')
const d = alias(deliveries, 'd')

/** Beginnings of webhook ids have no index: they are looked for among so many of the newest in the range of time. */
export const searchedRows = 50_000
/** More than these are no answer to a search. */
const maxFound = 1000

type Search = { q: string; since?: string | undefined; until?: string | undefined }

/** Deliveries whose own id, request id or webhook id is or begins with the text. */
export function deliveryFound({ q, ...range }: Search): SQL {
  const { first, last } = deliveryIdRange(q)
  const ids = sql`select ${deliveries.id} from ${deliveries}`
  const branches = [
    sql`(${ids} where ${deliveries.id} between ${first}::uuid and ${last}::uuid and ${deliveries.webhook_id} = ${q})`,
    sql`(select id from (
        select ${deliveries.id}, ${deliveries.webhook_id} from ${deliveries}
        ${whereWithin(deliveries.received_at, range)}
        order by ${newestFirst({ at: deliveries.received_at, id: deliveries.id })} limit ${searchedRows}) newest
      where starts_with(webhook_id, ${q}) limit ${maxFound})`,
    ...uuidRange(q).flatMap((range) => [
      sql`(${ids} where ${deliveries.id} ${range} limit ${maxFound})`,
      sql`(${ids} where ${deliveries.request_id} ${range} limit ${maxFound})`,
    ]),
  ]
  return sql`${d.id} = any(array(${sql.join(branches, sql` union all `)}))`
}

/** Arrivals of such deliveries, and those that claimed such a webhook id and were refused. */
export function arrivalFound({ q, ...range }: Search): SQL {
  const { first, last } = deliveryIdRange(q)
  const ids = sql`select ${deliveries.id} from ${deliveries}`
  // offset 0: with the order in sight, the planner would walk the whole log by time to the end.
  const place = sql`${arrivals.arrived_at}, ${arrivals.id}`
  const placesWhere = (condition: SQL) => sql`
    (select * from (select ${place} from ${arrivals} where ${condition} offset 0) a
      order by arrived_at desc limit ${maxFound})`
  const branches = [
    placesWhere(
      sql`${arrivals.delivery_id} between ${first}::uuid and ${last}::uuid and ${arrivals.webhook_id} = ${q}`,
    ),
    sql`(select arrived_at, id from (
        select ${place}, ${arrivals.webhook_id} from ${arrivals} ${whereWithin(arrivals.arrived_at, range)}
        order by ${arrivals.arrived_at} desc, ${arrivals.id} desc limit ${searchedRows}) newest
      where starts_with(webhook_id, ${q}) limit ${maxFound})`,
    ...uuidRange(q).flatMap((range) => [
      placesWhere(sql`${arrivals.delivery_id} ${range}`),
      placesWhere(
        sql`${arrivals.delivery_id} = any(array(${ids} where ${deliveries.request_id} ${range} limit ${maxFound}))`,
      ),
    ]),
  ]
  return isAmong(sql.join(branches, sql` union `))
}

type Measured = {
  min_ack_ms?: number | undefined
  min_skew_seconds?: number | undefined
  since?: string | undefined
  until?: string | undefined
}

/** Measurements of arrivals have no index, which each arrival would write. A search reads so many of the newest. */
const measuredRows = 200_000
const maxMeasured = 20_000

/** Arrivals `a` that were acknowledged slowly, or signed by a clock that is off. */
export function arrivalMeasured({
  min_ack_ms: ackMs,
  min_skew_seconds: skewSeconds,
  ...range
}: Measured): SQL | undefined {
  if (ackMs === undefined && skewSeconds === undefined) return undefined
  return and(
    isOfTheNewest(range),
    ackMs === undefined ? undefined : gte(a.ack_ms, ackMs),
    skewSeconds === undefined ? undefined : or(gte(a.skew_seconds, skewSeconds), lte(a.skew_seconds, -skewSeconds)),
  )
}

function isOfTheNewest(range: Omit<Search, 'q'>): SQL {
  return sql`${a.arrived_at} >= (select min(arrived_at) from (
    select ${arrivals.arrived_at} from ${arrivals} ${whereWithin(arrivals.arrived_at, range)}
    order by ${arrivals.arrived_at} desc limit ${measuredRows}) newest)`
}

/** Deliveries that came so many times. */
export function cameOften({ atLeast, ...range }: Omit<Search, 'q'> & { atLeast: number }): SQL {
  return sql`${d.id} = any(array(
    select ${a.delivery_id} from ${arrivals} a where ${a.delivery_id} is not null and ${isOfTheNewest(range)}
    group by ${a.delivery_id} having sum(1 + ${a.folded}) >= ${atLeast} limit ${maxMeasured}))`
}

/** Deliveries of which an arrival was such. */
export function deliveryMeasured(measured: Measured): SQL | undefined {
  const found = arrivalMeasured(measured)
  if (found === undefined) return undefined
  return sql`${d.id} = any(array(
    select ${a.delivery_id} from ${arrivals} a where ${a.delivery_id} is not null and ${found}
    order by ${a.arrived_at} desc limit ${maxMeasured}))`
}

/**
 * The arrivals `a` at these places. Two arrays, though the id alone would do: the planner goes by arrays, and partitions
 * are chosen by the time.
 */
export function isAmong(places: SQL): SQL {
  return sql`(${a.arrived_at} = any(array(select arrived_at from (${places}) as p))
    and ${a.id} = any(array(select id from (${places}) as p)))`
}

function whereWithin(at: Column, range: Omit<Search, 'q'>): SQL {
  const given = within(at, range)
  return given === undefined ? sql`` : sql`where ${given}`
}

/** All uuids that begin with the text, as a range of an index; none where it is no beginning of a uuid. */
export function uuidRange(q: string): SQL[] {
  const hex = q.toLowerCase().replaceAll('-', '')
  if (!/^[0-9a-f]{4,32}$/.test(hex)) return []
  return [sql`between ${hex.padEnd(32, '0')}::uuid and ${hex.padEnd(32, 'f')}::uuid`]
}
