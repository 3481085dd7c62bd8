import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { deliveryStatuses } from '../domain/delivery.ts'
import { outcomesThat, parking } from './effects.ts'
import { deleting } from './parts-sql.ts'

/*
 * The end of the general statement (general-sql.ts): what a landing changes in deliveries. Each rule below finds deliveries,
 * and says what changes in them. `flagged` writes the changes of all rules together.
 *
 *   rule              finds                                             changes
 *   reported          the delivery of the report                        adds the flags that the report carries
 *   ownParking        the same, while its claim is held                 flags and parks it for a mismatch, or ends the
 *                                                                       parking by a single replay
 *   otherEnvironment  all of the request, if the report is of another   flags those signed in the old environment, ends
 *                     environment than the request or its result had    the parking of those signed in the new one
 *   reusedId          the delivery, and others with its webhook id      flags the later one of each two
 *   otherEnd          the delivery, or all of the request               flags those that carried another end than the one
 *                     (`compares_all`)                                  that stands; if that is confirmed, the others
 *                                                                       lose this flag
 *
 * Plans (parts-sql.ts): fenced, ordered range.
 */

/** The changes by one rule in a delivery that it finds. A member that is missing changes nothing. */
type FlagChange = {
  delivery: SQL
  /** A flag, or null. */
  adds?: SQL
  endsContradiction?: SQL
  /** The reason for parking, or null. */
  parks?: SQL
  unparks?: SQL
}

/** For SELECT: one row of `flag_changes`. */
const change = ({ delivery, adds, endsContradiction, parks, unparks }: FlagChange): SQL => sql`
        ${delivery} as delivery_id, ${adds ?? sql`null::text`} as adds,
        ${endsContradiction ?? sql`false`} as ends_contradiction,
        ${parks ?? sql`null::text`} as parks, ${unparks ?? sql`false`} as unparks`

/** Outcomes that change no flag by the report. */
const unflagged = outcomesThat(({ delivery }) => delivery === 'waits' || delivery === 'deleted')

/** The end of a request for each status of a delivery, as the branches of a CASE. */
const endOfStatus = sql.raw(
  Object.entries(deliveryStatuses)
    .map(([end, status]) => `when '${status}' then '${end}'`)
    .join(' '),
)

/** `flags` of the report: `foreign_host`. */
const reported = sql`
      select ${change({ delivery: sql`delivery_id`, adds: sql`jsonb_array_elements_text(flags)` })}
      from outcomes where delivery_id is not null and outcome not in (${unflagged})`

/** A single replay has no claim. */
const ownParking = sql`
      select ${change({ delivery: sql`delivery_id`, adds: sql`parks`, parks: sql`parks`, unparks: sql`unparks` })}
      from outcomes where (parks is not null or unparks) and outcome not in (${unflagged})
        and (via = 'replay' or delivery_id in (select dequeued.delivery_id from dequeued))`

const otherEnvironment = sql`
      select ${change({
        delivery: sql`d.id`,
        adds: sql`case when d.environment <> outcomes.environment then 'key_mismatch' end`,
        unparks: sql`d.environment = outcomes.environment`,
      })}
      from outcomes, lateral (
        select id, parked_reason, environment from mediadock.deliveries
        where request_id = outcomes.request_id and status is not null
          and source_name is not distinct from outcomes.source_name offset 0) d
      where outcomes.changes_environment and outcomes.outcome = 'landed' and d.environment in ('live', 'sandbox')
        and (d.environment <> outcomes.environment or d.parked_reason = 'key_mismatch')`

/**
 * The later one may have landed before, if this one was slow to be stored. Hints and unreadable ones have no status, and
 * are not flagged. Only 16 others are compared, so of more than 17 the first ones may stay without the flag.
 */
const reusedId = sql`
      select ${change({ delivery: sql`later.id`, adds: sql`'id_reused'` })}
      from outcomes, lateral (select * from mediadock.deliveries where id = outcomes.delivery_id offset 0) delivery,
        lateral (
          select * from mediadock.deliveries
          where id between outcomes.webhook_first_id and outcomes.webhook_last_id and id <> delivery.id
          order by id limit 16) other,
        lateral (select case when (other.received_at, other.id) > (delivery.received_at, delivery.id)
          then other.id else delivery.id end as id) later
      where outcomes.outcome not in (${deleting}) and other.webhook_id = delivery.webhook_id
        and other.source_name is not distinct from delivery.source_name and (later.id = delivery.id or other.status is not null)`

const otherEnd = sql`
      select ${change({
        delivery: sql`d.id`,
        adds: sql`case when d.delivered <> outcomes.standing_status then 'contradiction' end`,
        endsContradiction: sql`d.delivered = outcomes.standing_status`,
      })}
      from outcomes, lateral (
        select id, flags,
          case status ${endOfStatus} end as delivered
        from (
          select id, flags, status, source_name, parked_reason from mediadock.deliveries
          where request_id = outcomes.request_id and outcomes.compares_all
          union all
          select id, flags, status, source_name, parked_reason from mediadock.deliveries
          where id = outcomes.delivery_id and not outcomes.compares_all) as compared
        where status is not null and source_name is not distinct from outcomes.source_name
          and (parked_reason is null or id = outcomes.delivery_id
            or (outcomes.changes_environment and parked_reason = 'key_mismatch')) offset 0) d
      where outcomes.outcome not in (${unflagged}, ${parking})
        and (d.delivered <> outcomes.standing_status or (outcomes.standing_confirmed and 'contradiction' = any(d.flags)))`

/** The changes by every rule. */
export const flagChanges = sql.join(
  [reported, ownParking, otherEnvironment, reusedId, otherEnd],
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
