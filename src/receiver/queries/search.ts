import { and, gte, lte, or, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { arrivals } from '../domain/arrivals-schema.ts'
import { deliveryIdRange } from '../domain/delivery.ts'
import { deliveries } from '../domain/schema.ts'
import { a, d } from './aliases.ts'
import type { ArrivalFilters } from './filters.ts'
import { given, type Range, within } from './page.ts'

/**
 * A condition without an index is searched among this many of the newest rows in the time range (docs/limits.md), since
 * the search reads each of them.
 */
export const searchedRows = 20_000
/** The rows that one part of a search, or a grouping of errors, takes, since it reads them one by one. */
export const foundRows = 1000

/** An id of any kind, or the beginning of one that is a uuid. For the search alone; no list has it as a filter. */
export type AnyId = { anyId?: string | undefined }

/** SQL condition: the text is the webhook id of the delivery `d`, or its id or request id begins with the text. */
export function deliveryFound(text: string): SQL {
  const { first, last } = deliveryIdRange(text)
  const ids = sql`select ${deliveries.id} from ${deliveries}`
  const branches = [
    sql`(${ids} where ${deliveries.id} between ${first}::uuid and ${last}::uuid and ${deliveries.webhook_id} = ${text})`,
    ...uuidRange(text).flatMap((range) => [
      sql`(${ids} where ${deliveries.id} ${range} limit ${foundRows})`,
      sql`(${ids} where ${deliveries.request_id} ${range} limit ${foundRows})`,
    ]),
  ]
  return sql`${d.id} = any(array(${sql.join(branches, sql` union all `)}))`
}

/** SQL condition: the arrival `a` is of such a delivery, or states such a webhook id. */
export function arrivalFound(text: string): SQL {
  const { first, last } = deliveryIdRange(text)
  const ids = sql`select ${deliveries.id} from ${deliveries}`
  const newestWhere = (condition: SQL) =>
    sql`(select * from ${placesWhere(condition)} a order by arrived_at desc limit ${foundRows})`
  const branches = [
    newestWhere(
      sql`${arrivals.delivery_id} between ${first}::uuid and ${last}::uuid and ${arrivals.webhook_id} = ${text}`,
    ),
    ...uuidRange(text).flatMap((range) => [
      newestWhere(sql`${arrivals.delivery_id} ${range}`),
      newestWhere(
        sql`${arrivals.delivery_id} = any(array(${ids} where ${deliveries.request_id} ${range} limit ${foundRows}))`,
      ),
    ]),
  ]
  return isAmong(sql.join(branches, sql` union `))
}

/**
 * SQL: the places of arrivals in the log. `offset 0` hides the order from the planner, which would otherwise scan the
 * whole log by time.
 */
export function placesWhere(condition: SQL): SQL {
  return sql`(select ${arrivals.arrived_at}, ${arrivals.id} from ${arrivals} where ${condition} offset 0)`
}

type Measured = Range & Pick<ArrivalFilters, 'min_ack_ms' | 'min_skew_seconds'>

/** SQL condition: the arrival `a` was acknowledged slowly, or signed by a clock that differs. */
export function arrivalMeasured({ min_ack_ms: ackMs, min_skew_seconds: skew, ...range }: Measured): SQL | undefined {
  if (ackMs === undefined && skew === undefined) return undefined
  return and(
    isOfTheNewest(range),
    given(ackMs, (least) => gte(a.ack_ms, least)),
    given(skew, (least) => or(gte(a.skew_seconds, least), lte(a.skew_seconds, -least))),
  )
}

/** SQL condition: the arrival `a` is one of the newest of the time range. */
export function isOfTheNewest(range: Range): SQL {
  return sql`${a.arrived_at} >= (select min(arrived_at) from (
    select ${arrivals.arrived_at} from ${arrivals} where ${within(arrivals.arrived_at, range) ?? sql`true`}
    order by ${arrivals.arrived_at} desc limit ${searchedRows}) newest)`
}

/** SQL condition: the delivery arrived at least this many times. */
export function cameOften(atLeast: number, range: Range): SQL {
  return sql`${d.id} = any(array(
    select ${a.delivery_id} from ${arrivals} a where ${a.delivery_id} is not null and ${isOfTheNewest(range)}
    group by ${a.delivery_id} having sum(1 + ${a.folded}) >= ${atLeast}))`
}

/** SQL condition: the delivery has an arrival with such measurements. */
export function deliveryMeasured(measured: Measured): SQL | undefined {
  return given(
    arrivalMeasured(measured),
    (found) => sql`${d.id} = any(array(
      select ${a.delivery_id} from ${arrivals} a where ${a.delivery_id} is not null and ${found}))`,
  )
}

/**
 * SQL condition: the arrival `a` is at one of these places. The array of times lets Postgres exclude partitions; the
 * ids alone would not.
 */
export function isAmong(places: SQL): SQL {
  return sql`(${a.arrived_at} = any(array(select arrived_at from (${places}) as p))
    and ${a.id} = any(array(select id from (${places}) as p)))`
}

/** Returns the range of uuids that begin with the text; empty if no uuid can begin with it. */
export function uuidRange(text: string): SQL[] {
  const hex = text.toLowerCase().replaceAll('-', '')
  if (!/^[0-9a-f]{4,32}$/.test(hex)) return []
  return [sql`between ${hex.padEnd(32, '0')}::uuid and ${hex.padEnd(32, 'f')}::uuid`]
}
