import { sql } from '../../platform/postgres/drizzle.ts'
import { deliveryStatuses } from '../domain/delivery.ts'

/*
 * The end of the whole statement (whole-sql.ts): what a landing changes in deliveries. `flagChanges` has one row for each
 * rule that applies to a delivery, of a report or another one of its request, with these columns:
 *
 *   delivery_id         the delivery
 *   adds                a flag that it gets, or null
 *   ends_contradiction  true if it loses the flag `contradiction`
 *   parks               the reason why it is parked, or null
 *   unparks             true if it is parked no longer
 *
 * `flagged` writes them. Plans (parts-sql.ts): fenced, ordered range.
 */

/** Outcomes that change no flag by the report. */
const unflagged = sql`'raced', 'discarded'`
const mismatches = sql`'key_mismatch', 'source_mismatch'`

/** The end of a request for each status of a delivery, as the branches of a CASE. */
const endOfStatus = sql.raw(
  Object.entries(deliveryStatuses)
    .map(([end, status]) => `when '${status}' then '${end}'`)
    .join(' '),
)

/** The flags that the report carries. */
const reported = sql`
      select delivery_id, jsonb_array_elements_text(flags) as adds, false as ends_contradiction, null::text as parks,
        false as unparks
      from outcomes where delivery_id is not null and outcome not in (${unflagged})`

/** A mismatch flags and parks the delivery, only while its claim is held. A single replay has no claim. */
const own = sql`
      select delivery_id, parks, false, parks, unparks
      from outcomes where (parks is not null or unparks) and outcome not in (${unflagged})
        and (via = 'replay' or delivery_id in (select dequeued.delivery_id from dequeued))`

/**
 * Where the report is of another environment than the request or its result had: deliveries signed in the old one are
 * flagged, those of the new one are parked no longer.
 */
const otherEnvironment = sql`
      select d.id, case when d.environment <> outcomes.environment then 'key_mismatch' end as adds, false, null,
        d.environment = outcomes.environment as unparks
      from outcomes, lateral (
        select id, parked_reason, environment from mediadock.deliveries
        where request_id = outcomes.request_id and status is not null
          and source_name is not distinct from outcomes.source_name offset 0) d
      where outcomes.changes_environment and outcomes.outcome = 'landed' and d.environment in ('live', 'sandbox')
        and (d.environment <> outcomes.environment or d.parked_reason = 'key_mismatch')`

/**
 * Of two deliveries with the same webhook id, the later one is flagged: this one, or the other, which may have landed
 * before if this one was slow to be stored. Hints and unreadable ones have no status, and are not flagged. Only 16 others
 * are compared, so of more than 17 the first ones may stay without the flag.
 */
const reusedId = sql`
      select later.id, 'id_reused' as adds, false, null, false
      from outcomes, lateral (select * from mediadock.deliveries where id = outcomes.delivery_id offset 0) own,
        lateral (
          select * from mediadock.deliveries
          where id between outcomes.webhook_first_id and outcomes.webhook_last_id and id <> own.id
          order by id limit 16) other,
        lateral (select case when (other.received_at, other.id) > (own.received_at, own.id)
          then other.id else own.id end as id) later
      where outcomes.outcome <> 'discarded' and other.webhook_id = own.webhook_id
        and other.source_name is not distinct from own.source_name and (later.id = own.id or other.status is not null)`

/**
 * A delivery that carried another end than the one that stands gets the flag. It loses the flag once the provider has
 * confirmed its end. Compares only the report's own delivery, or, with `concerns_all`, all of its request.
 */
const otherEnd = sql`
      select d.id, case when d.delivered <> outcomes.standing_status then 'contradiction' end as adds,
        d.delivered = outcomes.standing_status as ends_contradiction, null, false
      from outcomes, lateral (
        select id, flags,
          case status ${endOfStatus} end as delivered
        from (
          select id, flags, status, source_name, parked_reason from mediadock.deliveries
          where request_id = outcomes.request_id and outcomes.concerns_all
          union all
          select id, flags, status, source_name, parked_reason from mediadock.deliveries
          where id = outcomes.delivery_id and not outcomes.concerns_all) as compared
        where status is not null and source_name is not distinct from outcomes.source_name
          and (parked_reason is null or id = outcomes.delivery_id
            or (outcomes.changes_environment and parked_reason = 'key_mismatch')) offset 0) d
      where outcomes.outcome not in (${unflagged}, ${mismatches})
        and (d.delivered <> outcomes.standing_status or (outcomes.standing_confirmed and 'contradiction' = any(d.flags)))`

/** The changes by every rule. */
export const flagChanges = sql.join(
  [reported, own, otherEnvironment, reusedId, otherEnd],
  sql`
      union all`,
)

/** Writes the changes to each delivery that they change. */
export const flagged = sql`
      update mediadock.deliveries d
      set flags = array(select distinct f from unnest(case when n.ends_contradiction
            then array_remove(d.flags, 'contradiction') else d.flags end || n.added) f order by f),
          parked_reason = coalesce(n.parks, case when not n.unparks then d.parked_reason end)
      from (
        select delivery_id, array_agg(adds) filter (where adds is not null) as added,
          bool_or(ends_contradiction) as ends_contradiction, max(parks) as parks, bool_or(unparks) as unparks
        from flag_changes group by delivery_id
      ) n
      where d.id = any(array[n.delivery_id])
        and (not d.flags @> n.added or (n.ends_contradiction and 'contradiction' = any(d.flags))
          or d.parked_reason is distinct from coalesce(n.parks, case when not n.unparks then d.parked_reason end))`
