import { and, eq, isNotNull, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { arrivals } from '../domain/arrivals-schema.ts'
import { attempts, inbox } from '../domain/schema.ts'
import { a, d } from './aliases.ts'
import type { DeliveryFilters } from './filters.ts'
import { within } from './page.ts'
import { searchedRows } from './search.ts'

/** SQL condition on a delivery `d`: it waits to be landed. */
export const isPending = sql`exists (select from ${inbox} where ${inbox.delivery_id} = ${d.id})`

/** The outcome of the last attempt. A replay without effect does not change the outcome. */
const lastOutcome = sql`(select ${attempts.outcome} from ${attempts} where ${attempts.delivery_id} = ${d.id}
  and (${attempts.outcome}, ${attempts.detail}) is distinct from ('no_effect', 'replay')
  order by ${attempts.attempted_at} desc limit 1)`

/** A delivery without an attempt was parked on arrival, is not processed yet, or landed at the first try. */
export const outcomeShown = sql`coalesce(${lastOutcome}, case when ${d.parked_reason} is not null then 'parked'
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

/** SQL condition: the delivery `d` has the outcome. */
export function outcomeIs(outcome: NonNullable<DeliveryFilters['outcome']>, until: string | undefined): SQL {
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
