import { columnsOf, columnsOfPart, list, selected } from '../../platform/postgres/columns.ts'
import { sql, type SQL, type StringChunk } from '../../platform/postgres/drizzle.ts'
import { maxParkedForRequest } from '../domain/delivery.ts'
import * as schema from '../domain/schema.ts'
import { ended, settled } from './parts.ts'

const deliveries = columnsOf(schema.deliveries)
const d = columnsOf(schema.deliveries, 'd')
const later = columnsOf(schema.deliveries, 'later')
const earlier = columnsOf(schema.deliveries, 'earlier')

/*
 * The flags that deliveries get or lose by landings, and whether they are parked. Each rule selects from `ended`:
 *
 *   delivery_id   the delivery of a landing, or another one of its request
 *   flag          the flag to add; null adds none
 *   agrees        true: a `contradiction` is removed
 *   unparks       true: the delivery is parked no longer
 */
const flag = columnsOfPart('flag', ['delivery_id', 'flag', 'agrees', 'unparks'])
/** SQL for the SELECT of a rule. */
const change = (
  delivery: StringChunk,
  { add = sql`null`, agrees = sql`false`, unparks = sql`false` }: { add?: SQL; agrees?: SQL; unparks?: SQL },
) => selected(flag, { delivery_id: delivery, flag: add, agrees, unparks })

/** SQL: the outcomes that park a delivery, with themselves as the reason. */
export const parking = sql`('key_mismatch', 'source_mismatch')`

const most = sql.raw(String(maxParkedForRequest))

/** SQL condition: as many other deliveries of the request as may be parked for this reason are parked for it. */
export const hasTooManyParked = (
  requestId: SQL | StringChunk,
  reason: SQL | StringChunk,
  deliveryId: SQL | StringChunk,
) => sql`(
          select count(*) >= ${most} from (
            select from mediadock.deliveries d
            where ${d.request_id} = ${requestId} and ${d.parked_reason} = ${reason} and ${d.id} <> ${deliveryId}
            limit ${most}) as parked)`

/** SQL: deletes deliveries beyond that limit. They get no row in `attempts`. */
export const discard = sql`
    discarded as (
      delete from mediadock.deliveries d using ended
      where ${d.id} = any(array[${ended.delivery_id}]) and ${ended.outcome} = 'discarded'
        and ${d.id} in (select ${settled.delivery_id} from settled)
    )`

/** SQL condition: the delivery is parked. A landing parks only while its claim holds. A replay has no claim. */
const isParked = sql`${ended.delivery_id} is not null and ${ended.outcome} in ${parking}
        and (${ended.claims} is null or ${ended.delivery_id} in (select ${settled.delivery_id} from settled))`

/** The flags that the landing carries. */
const carried = sql`
      select ${change(ended.delivery_id, { add: sql`jsonb_array_elements_text(${ended.flags})` })} from ended
      where ${ended.delivery_id} is not null and ${ended.outcome} not in ('raced', 'discarded')`

const parked = sql`
      select ${change(ended.delivery_id, { add: sql`${ended.outcome}` })} from ended where ${isParked}`

const unparkedByReplay = sql`
      select ${change(ended.delivery_id, { unparks: sql`true` })} from ended
      where ${ended.delivery_id} is not null and ${ended.claims} is null and ${ended.outcome} <> 'raced'
        and ${ended.outcome} not in ${parking}`

/**
 * Where the request changed its environment: deliveries signed in the old one are flagged, those of the new one are
 * parked no longer. The current keys decide for rows of releases that stored no environment. `offset 0` keeps this a
 * look-up.
 */
const ofOtherEnvironment = (keyEnvironment: SQL) => sql`
      select ${change(d.id, {
        add: sql`case when ${d.environment} <> ended.environment then 'key_mismatch' end`,
        unparks: sql`${d.environment} = ended.environment`,
      })}
      from ended, lateral (
        select ${list(deliveries, 'id', 'parked_reason')},
          coalesce(${deliveries.environment}, ${keyEnvironment}) as environment
        from mediadock.deliveries
        where ${deliveries.request_id} = ${ended.request_id} and ${deliveries.status} is not null
          and ${deliveries.source_name} is not distinct from ${ended.source_name} offset 0) d
      where ${ended.changes_environment} and ${ended.outcome} = 'landed' and ${d.environment} in ('live', 'sandbox')
        and (${d.environment} <> ended.environment or ${d.parked_reason} = 'key_mismatch')`

/** An earlier delivery has the same webhook id. Subtracting the times makes the planner search by the range of ids. */
const idReused = sql`
      select ${change(later.id, { add: sql`'id_reused'` })}
      from ended, lateral (
        select ${list(deliveries, 'id', 'webhook_id', 'source_name', 'received_at')} from mediadock.deliveries
        where ${deliveries.id} = ${ended.delivery_id} offset 0) later
      where ${ended.outcome} <> 'discarded' and exists (
        select from mediadock.deliveries earlier where ${earlier.id} between ${ended.first_id} and ${ended.last_id}
          and ${earlier.webhook_id} = ${later.webhook_id}
          and ${earlier.source_name} is not distinct from ${later.source_name}
          and ${earlier.id} <> ${later.id}
          and ${earlier.received_at} - ${later.received_at} <= interval '0' offset 0)`

const compared = list(deliveries, 'id', 'flags', 'status', 'source_name', 'parked_reason')
/**
 * A contradiction is open until the provider has confirmed the end that the delivery carried. Compares all deliveries
 * of the request if the landing concerns them, otherwise its own alone.
 */
const contradicting = sql`
      select ${change(d.id, {
        add: sql`case when d.delivered <> ${ended.final_status} then 'contradiction' end`,
        agrees: sql`d.delivered = ${ended.final_status}`,
      })}
      from ended, lateral (
        select ${list(deliveries, 'id', 'flags')}, case ${deliveries.status} when 'OK' then 'COMPLETED'
          when 'ERROR' then 'FAILED' else ${deliveries.status} end as delivered
        from (
          select ${compared} from mediadock.deliveries
          where ${deliveries.request_id} = ${ended.request_id} and ${ended.concerns_all}
          union all
          select ${compared} from mediadock.deliveries
          where ${deliveries.id} = ${ended.delivery_id} and not ${ended.concerns_all}) as compared
        where ${deliveries.status} is not null and ${deliveries.source_name} is not distinct from ${ended.source_name}
          and (${deliveries.parked_reason} is null
            or (${ended.changes_environment} and ${deliveries.parked_reason} = 'key_mismatch')) offset 0) d
      where ${ended.outcome} not in ('raced', 'key_mismatch', 'source_mismatch', 'discarded')
        and (d.delivered <> ${ended.final_status} or (${ended.is_final} and 'contradiction' = any(${d.flags})))`

/** SQL: `flag`, what the rules give, and `flagged`, which writes it to each delivery that it changes. */
export const flagAndPark = (keyEnvironment: SQL) => sql`
    flag as (
      ${sql.join(
        [carried, parked, unparkedByReplay, ofOtherEnvironment(keyEnvironment), idReused, contradicting],
        sql`
      union all`,
      )}
    ),
    flagged as (
      update mediadock.deliveries d
      set ${deliveries.flags} = array(select distinct f from unnest(
            case when n.agrees then array_remove(${d.flags}, 'contradiction') else ${d.flags} end || n.flags) f
            order by f),
          ${deliveries.parked_reason} = case
            when ${d.id} = any(array(select ${ended.delivery_id} from ended where ${isParked}))
              then (select ${ended.outcome} from ended where ${ended.delivery_id} = ${d.id} limit 1)
            when n.unpark then null else ${d.parked_reason} end
      from (
        select ${flag.delivery_id}, array_agg(${flag.flag}) filter (where ${flag.flag} is not null) as flags,
               bool_or(${flag.agrees}) as agrees, bool_or(${flag.unparks}) as unpark
        from flag group by ${flag.delivery_id}
      ) n
      where ${d.id} = any(array[n.delivery_id])
        and (not ${d.flags} @> n.flags or (n.unpark and ${d.parked_reason} is not null)
          or (n.agrees and 'contradiction' = any(${d.flags}))
          -- The delivery was parked before, and put back since.
          or (${d.parked_reason} is null and n.flags && array['key_mismatch', 'source_mismatch']))
    )`
