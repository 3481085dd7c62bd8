import { columnsOf, list } from '../../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../../platform/postgres/drizzle.ts'
import type { Environments } from '../../domain/keys.ts'
import * as schema from '../../domain/schema.ts'

const deliveries = columnsOf(schema.deliveries)
const d = columnsOf(schema.deliveries, 'd')
const earlier = columnsOf(schema.deliveries, 'earlier')

const isParked = sql`delivery_id is not null and outcome = 'key_mismatch' and (claims is null or delivery_id in (select delivery_id from settled))`

/**
 * `flag` and `flagged`: what a landing says of deliveries, its own and the others
 * of its request. Parks a delivery only while the claim on it holds, or for a replay, which has none.
 * Reads `outcome` and `settled`.
 */
export function flags(environments: Environments): SQL {
  const live = sql`${sql.param([...environments.live])}::text[]`
  const sandbox = sql`${sql.param([...environments.sandbox])}::text[]`
  // Rows of releases that did not store it are judged by today's keys.
  const environment = sql`coalesce(${deliveries.environment},
                     case when ${deliveries.key_name} = any(${live}) then 'live' when ${deliveries.key_name} = any(${sandbox}) then 'sandbox' end)`
  return sql`
    flag as (
      select delivery_id, jsonb_array_elements_text(flags) as flag, false as agrees from outcome where delivery_id is not null and outcome not in ('raced', 'discarded')
      union all
      -- No flag: a replay that got through takes the delivery out of the parked ones.
      select delivery_id, null, false from outcome where delivery_id is not null and claims is null and outcome not in ('raced', 'key_mismatch')
      union all
      select delivery_id, 'key_mismatch', false from outcome where ${isParked}
      union all
      -- The environment turned out to be this one: flag the deliveries that the other one signed, and unpark those of this one.
      select ${d.id}, case when d.of_other then 'key_mismatch' end, false from outcome,
        lateral (select ${deliveries.id}, ${environment} = case when outcome.sandbox then 'live' else 'sandbox' end as of_other,
                   ${environment} = case when outcome.sandbox then 'sandbox' else 'live' end and ${deliveries.parked_reason} = 'key_mismatch' as was_right
                 from mediadock.deliveries where ${deliveries.request_id} = outcome.request_id and ${deliveries.status} is not null offset 0) d
      where outcome.changes_environment and outcome.outcome = 'landed' and (d.of_other or d.was_right)
      union all
      -- offset 0 keeps these as look-ups in an index for each landing: joined freely, the planner reads all of
      -- deliveries. The times are subtracted so that the range of ids is what is searched by.
      select later.id, 'id_reused', false from outcome,
        lateral (select ${list(deliveries, 'id', 'webhook_id', 'received_at')} from mediadock.deliveries where ${deliveries.id} = outcome.delivery_id offset 0) later
      where outcome <> 'discarded' and exists (
        select from mediadock.deliveries earlier where ${earlier.id} between outcome.first_id and outcome.last_id
          and ${earlier.webhook_id} = later.webhook_id and ${earlier.id} <> later.id and ${earlier.received_at} - later.received_at <= interval '0' offset 0)
      union all
      -- A contradiction is open until the provider has confirmed the end that the delivery carried.
      select ${d.id}, case when d.delivered <> outcome.final_status then 'contradiction' end, d.delivered = outcome.final_status from outcome,
        lateral (select ${deliveries.id}, case ${deliveries.status} when 'OK' then 'COMPLETED' else 'FAILED' end as delivered, ${deliveries.flags} from mediadock.deliveries
          where ${deliveries.request_id} = outcome.request_id and ${deliveries.status} is not null
            and (${deliveries.parked_reason} is null or (outcome.changes_environment and ${deliveries.parked_reason} = 'key_mismatch')) offset 0) d
      where outcome not in ('raced', 'key_mismatch', 'discarded')
        and (d.delivered <> outcome.final_status or (outcome.is_final and 'contradiction' = any(${d.flags})))
    ),
    flagged as (
      update mediadock.deliveries d
      set ${deliveries.flags} = array(select distinct f from unnest(case when n.agrees then array_remove(${d.flags}, 'contradiction') else ${d.flags} end || n.flags) f order by f),
          ${deliveries.parked_reason} = case when ${d.id} = any(array(select delivery_id from outcome where ${isParked})) then 'key_mismatch'
                               when n.unpark then null else ${d.parked_reason} end
      from (
        select delivery_id, array_agg(flag) filter (where flag is not null) as flags, bool_or(agrees) as agrees,
               bool_or(flag is null and not agrees) as unpark
        from flag group by delivery_id
      ) n
      where ${d.id} = any(array[n.delivery_id])
        and (not ${d.flags} @> n.flags or (n.unpark and ${d.parked_reason} is not null) or (n.agrees and 'contradiction' = any(${d.flags})))
    )`
}
