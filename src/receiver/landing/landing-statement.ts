import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { maxParkedForKey } from '../domain/delivery.ts'
import type { Environments } from '../domain/keys.ts'
import { known, requestsOf, todaysEnvironment } from './known-requests.ts'
import type { Landing } from './landing.ts'
import { nextDoubt } from './next-doubt.ts'
import { changed, items, notified, removeMedia, settle, writeMedia, writeRequests } from './statement-parts.ts'

/*
 * The statement that lands results, for every case. Most deliveries need only the short way (ordinary-statement.ts),
 * which shares these parts. The parts are listed in the order in which they run, with their contents:
 *
 *   item      one row per landing: what the webhook or the result carries, who signed it, and the claim of its delivery
 *   seen      the row of its request in the snapshot of the statement; the same snapshot shows its media
 *   locked    the row of its request once it is locked, which may be newer
 *   known     item, the locked row as old_…, and the environments of the stored result and of the request
 *   verdict   known, the values to write as new_… and poll_at, and planned_outcome: docs/orders.md is the table
 *   written   the rows of requests that were written, as they are now
 *   outcome   verdict, actual_outcome (LandingOutcome), the status that stands now, whether it is final, and whether
 *             it concerns all deliveries of the request, or only the one that landed
 *   settled   the deliveries whose claim still held and ended
 *   flag      the flags that deliveries get or lose
 *
 * The other parts only write: media_written, media_removed, doubted, released, noted, discarded, flagged, changed,
 * notified.
 *
 * An environment is 'live', 'sandbox', or null where it is unknown. A landing meets up to four: `environment` of the
 * key that signed or fetched it, `result_environment` of the result that the row holds, `request_environment` of the
 * request as the provider or its tracking decided it, and `old_key_environment` of the key in the row, as it is
 * configured now.
 *
 * A row is often selected by an array of one (`= any(array[x])`). This forces one index look-up per row, although the
 * statistics are usually those of an empty inbox. An array of all rows beside a join would be sorted for each row.
 */

export type LandingAt = { now: SQL; environments: Environments; waitMs: number }

/** SQL: the WITH of the whole statement. A reader of `outcome` must add `everyNotification`. */
export function landingStatement(landings: readonly Landing[], { now, environments, waitMs }: LandingAt): SQL {
  return sql`with ${items(landings, waitMs)},
    ${requestsOf(environments)},
    ${known},
    ${verdicts(now)},
    ${writeRequests(now, { unlessChanged: isAsLocked, doubt: doubtOfParked(now) })},
    ${writeMedia},
    ${removeMedia},
    ${outcomes},
    ${pollDoubted(now)},
    ${settle(now, sql`true`)},
    ${discard},
    ${flags(environments)},
    ${flagged},
    ${changed(now)},
    ${notified}`
}

/** SQL: the outcomes that park a delivery, with themselves as the reason. */
const parking = sql`('key_mismatch', 'source_mismatch')`

/**
 * SQL condition: the key that signed is of another environment than the request. A key of unknown environment cannot
 * prove that it is the right one, so it counts as another. Two cases are exempt: a confirmed request, which no webhook
 * can change, and the key with which the request was tracked, if that is no longer configured.
 */
const isOfOtherEnvironment = sql`(environment <> request_environment
            or (environment is null and request_environment is not null and old_confirmed_at is null
              and (old_key_name <> key_name or old_key_environment is not null)))`

/**
 * The environment of a request is decided by the first of these that applies:
 *
 * 1. the provider, by the key to which it gives the result
 * 2. the key with which the request was tracked, if that is configured
 * 3. a webhook signed with a live key
 * 4. a webhook signed with a sandbox key
 *
 * A key of unknown environment decides nothing.
 *
 * The first line that applies gives planned_outcome (docs/orders.md has every case):
 *
 *   the request has no row                                              landed
 *   another landing changed the row since the snapshot                  raced
 *   the row belongs to another source                                   source_mismatch
 *   a delivery whose key is of another environment than the request     key_mismatch
 *   the row has not landed                                              landed
 *   signed sandbox, over an unconfirmed live result, environment open   key_mismatch
 *   the provider's result, over an unconfirmed result                   confirmed if it adds nothing, else landed
 *   signed in another environment, over an unconfirmed result           the same
 *   another status than the row's                                       contradiction
 *   the same status                                                     no_effect
 */
const verdicts = (now: SQL) => sql`
    verdict as (
      select known.*,
        -- Now if the result is incomplete. Also if it is unconfirmed and one of these holds: the environment changes, a
        -- poll is due, the request was tracked with another configured key than the one that signed, or no live key has
        -- signed for the end. Otherwise never.
        case when not media_complete or (not confirmed and (changes_environment or old_next_poll_at <= ${now}
            or (old_key_source is distinct from 'landed' and old_key_environment is not null
              and old_key_name <> key_name)
            or (environment is distinct from 'live' and request_environment is null))) then ${now}
          -- A hint made the row. Its poll may be under way, and may end without an answer.
          when not confirmed and old_landed_at is null and old_key_source = 'landed' then old_next_poll_at
          end as poll_at,
        coalesce(cost, case when not changes_environment then old_cost end) as new_cost,
        case when old_landed_at is null or old_status <> status or changes_environment
          then source else old_source end as new_source,
        case when replaces_key then key_name else old_key_name end as new_key_name,
        case when replaces_key then 'landed' else old_key_source end as new_key_source,
        coalesce(coalesce(environment, request_environment) = 'sandbox', old_sandbox) as new_sandbox,
        case
          when not is_known then 'landed'
          when is_newer then 'raced'
          when is_of_other_source then 'source_mismatch'
          -- A result of the provider has no delivery, and takes precedence over all keys.
          when delivery_id is not null and ${isOfOtherEnvironment} then 'key_mismatch'
          when old_landed_at is null then 'landed'
          when old_confirmed_at is null and delivery_id is not null and environment = 'sandbox'
            and result_environment = 'live' and request_environment is null then 'key_mismatch'
          -- The provider's result overrules a webhook, and a webhook signed live overrules one signed sandbox.
          when old_confirmed_at is null and (confirmed or environment <> result_environment) then
            case when old_status = status and old_media_complete and not changes_environment
              then 'confirmed' else 'landed' end
          when status <> old_status then 'contradiction'
          else 'no_effect' end as planned_outcome
      from (
        select known.*,
          coalesce(environment <> coalesce(result_environment, request_environment), false) as changes_environment,
          old_key_name is null or coalesce(environment <> coalesce(old_key_environment,
            case when old_key_source = 'landed' then result_environment end), false) as replaces_key
        from known
      ) as known
    )`

/** SQL: the extra poll for a delivery parked for its key, which is still doubtful after its request has landed. */
const doubtOfParked = (now: SQL) => sql`coalesce(r.doubt_poll_at, (
          select ${nextDoubt(now)} from mediadock.deliveries d
          where d.request_id = r.request_id and d.parked_reason = 'key_mismatch' limit 1))`

const isAsLocked = sql`r.request_id in (select request_id from locked) and r.confirmed_at is null`

/**
 * SQL condition: the limit of deliveries parked for their key, or for their source, is reached for the request. A kept
 * delivery that is replayed stays.
 */
const isFullOfParked = sql`(select i.replay_id from mediadock.inbox i
                      where i.delivery_id = verdict.delivery_id limit 1) is null and (
                    select count(*) >= ${maxParkedForKey} from (
                      select from mediadock.deliveries d
                      where d.request_id = verdict.request_id and d.parked_reason = planned_outcome
                        and d.id <> verdict.delivery_id
                      limit ${maxParkedForKey}) as parked)`

const outcomes = sql`
    outcome as (
      select verdict.*,
             case when planned_outcome in ('landed', 'confirmed') and written.request_id is null then 'raced'
                  when planned_outcome in ${parking} and claims is not null and ${isFullOfParked} then 'discarded'
                  else planned_outcome end as actual_outcome,
             coalesce(written.status, verdict.old_status) as final_status,
             old_confirmed_at is not null or (confirmed and written.request_id is not null) as is_final,
             -- Otherwise the flags of the other deliveries of the request stay as their own landings set them.
             written.request_id is not null and (confirmed or changes_environment
               or written.status is distinct from verdict.old_status) as concerns_all
      from verdict left join written using (request_id)
    )`

/** SQL: schedules an extra poll after a contradiction or key mismatch, which the poll decides. The schedule stays. */
const pollDoubted = (now: SQL) => sql`
    doubted as (
      update mediadock.requests r set doubt_poll_at = ${nextDoubt(now)}
      where r.request_id = any(array(
          select request_id from outcome where actual_outcome in ('contradiction', 'key_mismatch')))
        and r.confirmed_at is null and r.doubt_poll_at is null
    )`

/** SQL: deletes discarded deliveries. They get no row in `attempts`. */
const discard = sql`
    discarded as (
      delete from mediadock.deliveries d using outcome
      where d.id = any(array[outcome.delivery_id]) and actual_outcome = 'discarded'
        and d.id in (select delivery_id from settled)
    )`

/** SQL condition: the delivery is parked. A landing parks only while its claim holds. A replay has no claim. */
const isParked = sql`delivery_id is not null and actual_outcome in ${parking}
        and (claims is null or delivery_id in (select delivery_id from settled))`

/** SQL: the flags to add to the delivery of a landing, and to the others of its request. Null adds none. */
const flags = (environments: Environments) => sql`
    flag as (
      select delivery_id, jsonb_array_elements_text(flags) as flag, false as agrees, false as unparks from outcome
      where delivery_id is not null and actual_outcome not in ('raced', 'discarded')
      union all
      -- A successful replay unparks its delivery.
      select delivery_id, null, false, true from outcome
      where delivery_id is not null and claims is null and actual_outcome <> 'raced'
        and actual_outcome not in ${parking}
      union all
      select delivery_id, actual_outcome, false, false from outcome where ${isParked}
      union all
      -- The environment changed: flag the deliveries signed in the old one, and unpark those of the new one.
      select d.id, case when d.environment <> outcome.environment then 'key_mismatch' end, false,
        d.environment = outcome.environment from outcome,
        -- The current keys decide for rows of releases that stored no environment. offset 0 keeps this a look-up.
        lateral (select id, parked_reason, coalesce(environment, ${todaysEnvironment(environments)}) as environment
                 from mediadock.deliveries
                 where request_id = outcome.request_id and status is not null
                   and source_name is not distinct from outcome.source_name offset 0) d
      where outcome.changes_environment and outcome.actual_outcome = 'landed' and d.environment in ('live', 'sandbox')
        and (d.environment <> outcome.environment or d.parked_reason = 'key_mismatch')
      union all
      -- Subtracting the times makes the planner search by the range of ids.
      select later.id, 'id_reused', false, false from outcome,
        lateral (select id, webhook_id, source_name, received_at from mediadock.deliveries
                 where id = outcome.delivery_id offset 0) later
      where actual_outcome <> 'discarded' and exists (
        select from mediadock.deliveries earlier where earlier.id between outcome.first_id and outcome.last_id
          and earlier.webhook_id = later.webhook_id and earlier.source_name is not distinct from later.source_name
          and earlier.id <> later.id
          and earlier.received_at - later.received_at <= interval '0' offset 0)
      union all
      -- A contradiction is open until the provider has confirmed the end that the delivery carried.
      select d.id, case when d.delivered <> outcome.final_status then 'contradiction' end,
        d.delivered = outcome.final_status, false
      from outcome,
        lateral (select id, flags, case status when 'OK' then 'COMPLETED' else 'FAILED' end as delivered
          from (select * from mediadock.deliveries where request_id = outcome.request_id and outcome.concerns_all
            union all
            select * from mediadock.deliveries where id = outcome.delivery_id and not outcome.concerns_all) as compared
          where status is not null and source_name is not distinct from outcome.source_name
            and (parked_reason is null or (outcome.changes_environment and parked_reason = 'key_mismatch')) offset 0) d
      where actual_outcome not in ('raced', 'key_mismatch', 'source_mismatch', 'discarded')
        and (d.delivered <> outcome.final_status or (outcome.is_final and 'contradiction' = any(d.flags)))
    )`

const flagged = sql`
    flagged as (
      update mediadock.deliveries d
      set flags = array(select distinct f
            from unnest(case when n.agrees then array_remove(d.flags, 'contradiction') else d.flags end || n.flags) f
            order by f),
          parked_reason = case
            when d.id = any(array(select delivery_id from outcome where ${isParked}))
              then (select actual_outcome from outcome where delivery_id = d.id limit 1)
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
