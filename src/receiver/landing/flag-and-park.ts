import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { maxParkedForRequest } from '../domain/delivery.ts'
import type { Environments } from '../domain/keys.ts'
import { todaysEnvironment } from './verdict.ts'

/*
 * The flags that deliveries get or lose by landings, and whether they are parked. Each rule selects from `ended`:
 *
 *   delivery_id   the delivery of a landing, or another one of its request
 *   flag          the flag to add; null adds none
 *   agrees        true: a `contradiction` is removed
 *   unparks       true: the delivery is parked no longer
 */

/** SQL: the outcomes that park a delivery, with themselves as the reason. */
export const parking = sql`('key_mismatch', 'source_mismatch')`

/** SQL condition: as many other deliveries of the request as may be parked for this reason are parked for it. */
export const hasTooManyParked = (requestId: SQL, reason: SQL, deliveryId: SQL) => sql`(
          select count(*) >= ${maxParkedForRequest} from (
            select from mediadock.deliveries d
            where d.request_id = ${requestId} and d.parked_reason = ${reason} and d.id <> ${deliveryId}
            limit ${maxParkedForRequest}) as parked)`

/** SQL: deletes deliveries beyond that limit. They get no row in `attempts`. */
export const discard = sql`
    discarded as (
      delete from mediadock.deliveries d using ended
      where d.id = any(array[ended.delivery_id]) and outcome = 'discarded'
        and d.id in (select delivery_id from settled)
    )`

/** SQL condition: the delivery is parked. A landing parks only while its claim holds. A replay has no claim. */
const isParked = sql`delivery_id is not null and outcome in ${parking}
        and (claims is null or delivery_id in (select delivery_id from settled))`

/** The flags that the landing carries. */
const carried = sql`
      select delivery_id, jsonb_array_elements_text(flags) as flag, false as agrees, false as unparks from ended
      where delivery_id is not null and outcome not in ('raced', 'discarded')`

const parked = sql`
      select delivery_id, outcome, false, false from ended where ${isParked}`

const unparkedByReplay = sql`
      select delivery_id, null, false, true from ended
      where delivery_id is not null and claims is null and outcome <> 'raced'
        and outcome not in ${parking}`

/**
 * Where the request changed its environment: deliveries signed in the old one are flagged, those of the new one are
 * parked no longer. The current keys decide for rows of releases that stored no environment. `offset 0` keeps this a
 * look-up.
 */
const ofOtherEnvironment = (environments: Environments) => sql`
      select d.id, case when d.environment <> ended.environment then 'key_mismatch' end, false,
        d.environment = ended.environment
      from ended, lateral (
        select id, parked_reason, coalesce(environment, ${todaysEnvironment(environments)}) as environment
        from mediadock.deliveries
        where request_id = ended.request_id and status is not null
          and source_name is not distinct from ended.source_name offset 0) d
      where ended.changes_environment and ended.outcome = 'landed' and d.environment in ('live', 'sandbox')
        and (d.environment <> ended.environment or d.parked_reason = 'key_mismatch')`

/** An earlier delivery has the same webhook id. Subtracting the times makes the planner search by the range of ids. */
const idReused = sql`
      select later.id, 'id_reused', false, false
      from ended, lateral (
        select id, webhook_id, source_name, received_at from mediadock.deliveries
        where id = ended.delivery_id offset 0) later
      where outcome <> 'discarded' and exists (
        select from mediadock.deliveries earlier where earlier.id between ended.first_id and ended.last_id
          and earlier.webhook_id = later.webhook_id and earlier.source_name is not distinct from later.source_name
          and earlier.id <> later.id
          and earlier.received_at - later.received_at <= interval '0' offset 0)`

/**
 * A contradiction is open until the provider has confirmed the end that the delivery carried. Compares all deliveries
 * of the request if the landing concerns them, otherwise its own alone.
 */
const contradicting = sql`
      select d.id, case when d.delivered <> ended.final_status then 'contradiction' end,
        d.delivered = ended.final_status, false
      from ended, lateral (
        select id, flags, case status when 'OK' then 'COMPLETED' when 'ERROR' then 'FAILED' else status end as delivered
        from (
          select * from mediadock.deliveries where request_id = ended.request_id and ended.concerns_all
          union all
          select * from mediadock.deliveries where id = ended.delivery_id and not ended.concerns_all) as compared
        where status is not null and source_name is not distinct from ended.source_name
          and (parked_reason is null or (ended.changes_environment and parked_reason = 'key_mismatch')) offset 0) d
      where outcome not in ('raced', 'key_mismatch', 'source_mismatch', 'discarded')
        and (d.delivered <> ended.final_status or (ended.is_final and 'contradiction' = any(d.flags)))`

/** SQL: `flag`, what the rules give, and `flagged`, which writes it to each delivery that it changes. */
export const flagAndPark = (environments: Environments) => sql`
    flag as (
      ${sql.join(
        [carried, parked, unparkedByReplay, ofOtherEnvironment(environments), idReused, contradicting],
        sql`
      union all`,
      )}
    ),
    flagged as (
      update mediadock.deliveries d
      set flags = array(select distinct f
            from unnest(case when n.agrees then array_remove(d.flags, 'contradiction') else d.flags end || n.flags) f
            order by f),
          parked_reason = case
            when d.id = any(array(select delivery_id from ended where ${isParked}))
              then (select outcome from ended where delivery_id = d.id limit 1)
            when n.unpark then null else d.parked_reason end
      from (
        select delivery_id, array_agg(flag) filter (where flag is not null) as flags, bool_or(agrees) as agrees,
               bool_or(unparks) as unpark
        from flag group by delivery_id
      ) n
      where d.id = any(array[n.delivery_id])
        and (not d.flags @> n.flags or (n.unpark and d.parked_reason is not null)
          or (n.agrees and 'contradiction' = any(d.flags))
          -- The delivery was parked before, and put back since.
          or (d.parked_reason is null and n.flags && array['key_mismatch', 'source_mismatch']))
    )`
