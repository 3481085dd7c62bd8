import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { deliveryStatuses, maxParkedForRequest } from '../domain/delivery.ts'
import { askForExtraPoll } from '../domain/poll-schedule.ts'
import { outputOfRow } from '../domain/results-schema.ts'
import {
  changed,
  dequeued,
  lockWait,
  mediaWritten,
  medium,
  notified,
  replayDetail,
  report,
  written,
  type LandingAt,
} from './parts-sql.ts'
import type { ReportToLand } from './report-to-land.ts'
import { requestRow, verdictFrom } from './rules-sql.ts'

/*
 * The whole statement, which lands every delivery that the short one does not, and the results of the provider.
 * parts-sql.ts explains the parts that both statements have, and the forms that keep their plans. Parts of this
 * statement alone:
 *
 *   seen           the versions of the rows of the requests, as the snapshot shows them
 *   locked         the rows of the requests, which `verdict` judges in their newest version
 *   media_removed  the media that a written request no longer has
 *   only_judged    a new version of each unconfirmed row that is only judged
 *   due_again      the deliveries that raced, which stay in the inbox
 *   discarded      the deliveries that are deleted
 *   flag_changes   what each rule changes in a delivery: flags, and whether it is parked; `flagged` writes it
 *
 * A landing is `raced`, and runs again, if the row changed after its snapshot. That snapshot is also too old to show
 * the flags that the other landing set. So a landing that only flags or parks its delivery writes a new version of the
 * row too, while the row is unconfirmed. Exceptions are a delivery of another source and a `discarded` one.
 *
 * The effects of each outcome on the row of the request, its extra poll, the delivery, its place in the inbox, its
 * attempts, and the feed with its NOTIFY:
 *
 *   outcome           row           extra poll    delivery         inbox         attempt     feed
 *   landed            written       if parked     kept             deleted       if later    yes
 *   agreed            written       -             -                -             -           -
 *   no_effect         new version   -             kept             deleted       yes         -
 *   contradiction     new version   yes           kept, flagged    deleted       yes         -
 *   key_mismatch      new version   yes           parked, flagged  deleted       yes         -
 *   source_mismatch   -             -             parked, flagged  deleted       yes         -
 *   discarded         -             -             deleted          deleted       -           -
 *   raced             -             -             kept             due at once   -           -
 *
 *   new version   only of an unconfirmed row. A confirmed one stays as it is, and gets no extra poll
 *   if parked     if a delivery of the request is parked for its key, and the row stays unconfirmed
 *   if later      unless the first claim of the delivery gave the request its first end
 *   flagged       with the name of the outcome. Each kept or parked delivery also gets `id_reused`, if an earlier one
 *                 has its webhook id, and, unless it raced, the flags that its report carries
 *
 * Only results of the provider agree, so that line has no delivery. A single replay also ends the parking, unless it
 * raced or parks. A written row may change flags of other deliveries: see `flagChanges`.
 */

/** The WITH of the whole statement. A reader of `outcomes` must add `everyNotification`. */
export const wholeStatement = (reports: readonly ReportToLand[], at: LandingAt): SQL => sql`with
    lock_wait as materialized (${lockWait(at.waitMs)}),
    report as (${report(reports)}),
    seen as (${seen}),
    locked as (${locked(at)}),
    verdict as (${verdict(at)}),
    written as (${written(at.now)}),
    media_written as (${mediaWritten}),
    media_removed as (${mediaRemoved}),
    outcomes as (${outcomes}),
    only_judged as (${onlyJudged(at.now)}),
    dequeued as (${dequeued}),
    due_again as (${dueAgain(at.now)}),
    attempted as (${attempted(at.now)}),
    discarded as (${discarded}),
    flag_changes as (${flagChanges}),
    flagged as (${flagged}),
    changed as (${changed(at.now)}),
    notified as (${notified})`

/** Outcomes that park the delivery. */
const parking = sql`'key_mismatch', 'source_mismatch'`
/** Outcomes that do not set the flags of the report. */
const unflagged = sql`'raced', 'discarded'`
/** Outcomes that give an unconfirmed row a new version and leave its result. */
const judging = sql`'contradiction', 'key_mismatch', 'no_effect'`

/** The output that the view `results` makes of the media that the report carries. */
const outputOfMedia = outputOfRow(sql`jsonb_to_recordset(verdict.media) as ${medium}`)

/** The end of a request for each status of a delivery, as the branches of a CASE. */
const endOfStatus = sql.raw(
  Object.entries(deliveryStatuses)
    .map(([end, status]) => `when '${status}' then '${end}'`)
    .join(' '),
)

const most = sql.raw(String(maxParkedForRequest))

/** SQL condition: as many other deliveries of the request as may be parked for this reason are parked for it. */
export const hasTooManyParked = (requestId: SQL, reason: SQL, deliveryId: SQL): SQL => sql`(
            select count(*) >= ${most} from (
              select from mediadock.deliveries d
              where d.request_id = ${requestId} and d.parked_reason = ${reason} and d.id <> ${deliveryId}
              limit ${most}) as parked)`

const isOneTooMany = hasTooManyParked(sql`verdict.request_id`, sql`verdict.ruling`, sql`verdict.delivery_id`)

/** Rows that are locked may be newer than the snapshot, which shows these versions. */
const seen = sql`
      select request_id, xmin::text as version from mediadock.requests
      where request_id = any(array(select request_id from report))`

/** Locks the rows in one order: two statements may wait for one another, but never deadlock. */
const locked = ({ keyNames }: LandingAt) => sql`${requestRow(keyNames)}
        where request_id = any(array(select request_id from report)) order by request_id for update`

const verdict = ({ now }: LandingAt) =>
  verdictFrom({
    rowChanged: sql`r.version is distinct from seen.version`,
    from: sql`report left join locked as r using (request_id) left join seen using (request_id)`,
    now,
  })

/**
 * The outcome, and what later parts need. `status`: the one that stands now. `is_confirmed`: the provider has confirmed
 * it. `concerns_all`: the report concerns all deliveries of the request. Otherwise the flags of the others stay as
 * their own landings set them.
 */
const outcomes = sql`
      select verdict.request_id, verdict.via, verdict.delivery_id, verdict.claims, verdict.old_landed_at,
        verdict.source_name, verdict.environment, verdict.webhook_first_id, verdict.webhook_last_id, verdict.flags,
        verdict.changes_environment,
        case
          when verdict.ruling = 'landed' and written.request_id is null then 'raced'
          -- Readers have what was written: the same end, complete, with its cost and output, which has the media. The
          -- view still shows the row before this statement. The provider's words for an error, its times and the name
          -- of the model are no change for readers.
          when verdict.via = 'poll' and not verdict.changes_environment and (
            select (shown.status, shown.media_complete, shown.cost, shown.output) is not distinct from
              (written.status, written.media_complete, written.cost, coalesce(written.output, ${outputOfMedia}))
            from mediadock.results shown where shown.request_id = verdict.request_id limit 1) then 'agreed'
          -- A delivery that was parked for its key before is closed by a replay, once its request is confirmed: no
          -- webhook changes that result.
          when verdict.ruling = 'key_mismatch' and verdict.old_confirmed_at is not null and (
            select 'key_mismatch' = any(d.flags) from mediadock.deliveries d
            where d.id = verdict.delivery_id limit 1) then 'no_effect'
          -- It would be parked, but the limit is reached. A kept delivery that is replayed stays.
          when verdict.ruling in (${parking}) and verdict.via = 'delivery'
            and (select i.replay_id from mediadock.inbox i where i.delivery_id = verdict.delivery_id limit 1) is null
            and ${isOneTooMany} then 'discarded'
          else verdict.ruling end as outcome,
        coalesce(written.status, verdict.old_status) as status,
        verdict.old_confirmed_at is not null or (verdict.via = 'poll' and written.request_id is not null)
          as is_confirmed,
        written.request_id is not null and (verdict.via = 'poll' or verdict.changes_environment
          or written.status is distinct from verdict.old_status) as concerns_all
      from verdict left join written using (request_id)`

/** Media that a written request no longer has. */
const mediaRemoved = sql`
      delete from mediadock.media m using written join report using (request_id)
      where m.request_id = any(array[written.request_id]) and not exists (
        select from jsonb_to_recordset(report.media) as ${medium} where o.kind = m.kind and o.position = m.position)
      returning m.kind, m.position, m.url`

/**
 * An unconfirmed row that was only judged gets a new version. A contradiction or key mismatch also schedules an extra
 * poll, which decides it. The other polls stay.
 */
const onlyJudged = (now: SQL) => sql`
      update mediadock.requests r
      set ${askForExtraPoll(now, sql`outcomes.outcome <> 'no_effect'`)}
      from outcomes
      where r.request_id = any(array[outcomes.request_id]) and r.confirmed_at is null
        and outcomes.outcome in (${judging})`

/** A raced delivery is due at once. Its claim stays for the next tries of this process: see postgres/lease.ts. */
const dueAgain = (now: SQL) => sql`
      update mediadock.inbox i set due_at = ${now} from outcomes
      where i.delivery_id = any(array[outcomes.delivery_id]) and i.claims = outcomes.claims
        and outcomes.outcome = 'raced'`

/**
 * The attempt of each delivery, but for one that lands its request at its first claim. That of a replay shows whether
 * it ended a pending or parked delivery, or repeated an end.
 */
const attempted = (now: SQL) => sql`
      insert into mediadock.attempts (delivery_id, attempted_at, outcome, detail, replay_id)
      select delivery_id, ${now}, outcome,
        ${replayDetail}, replay_id
      from dequeued where via = 'delivery' and outcome <> 'discarded'
        and (claims > 1 or outcome <> 'landed' or old_landed_at is not null)
      union all
      select delivery_id, ${now}, outcome,
        case when delivery_id in (select dequeued.delivery_id from dequeued)
          or (select d.parked_reason from mediadock.deliveries d
              where d.id = outcomes.delivery_id limit 1) is not null
          then 'replayed to its end' else 'replay' end, null
      from outcomes where via = 'replay' and outcome <> 'raced'
      on conflict do nothing`

/** Deliveries beyond the limit of parked ones. They get no row in `attempts`. */
const discarded = sql`
      delete from mediadock.deliveries d using dequeued
      where d.id = any(array[dequeued.delivery_id]) and dequeued.outcome = 'discarded'`

/**
 * One row per rule that applies to a delivery, of a report or another one of its request. `adds`: a flag, or null.
 * `ends_contradiction` removes that flag. `parks`: why it is parked. `unparks` ends that. Plans (parts-sql.ts): fenced,
 * ordered range.
 */
const flagChanges = sql`
      -- The flags that the report carries.
      select delivery_id, jsonb_array_elements_text(flags) as adds, false as ends_contradiction, null::text as parks,
        false as unparks
      from outcomes where delivery_id is not null and outcome not in (${unflagged})
      union all
      -- A mismatch parks the delivery, only while its claim is held. A replay has no claim.
      select delivery_id, outcome as adds, false, outcome as parks, false
      from outcomes where delivery_id is not null and outcome in (${parking})
        and (via = 'replay' or delivery_id in (select dequeued.delivery_id from dequeued))
      union all
      -- A replay that does not park ends the parking.
      select delivery_id, null, false, null, true as unparks
      from outcomes where via = 'replay'
        and outcome not in ('raced', ${parking})
      union all
      -- Where the request changed its environment: deliveries signed in the old one are flagged, those of the new one
      -- are parked no longer.
      select d.id, case when d.environment <> outcomes.environment then 'key_mismatch' end as adds, false, null,
        d.environment = outcomes.environment as unparks
      from outcomes, lateral (
        select id, parked_reason, environment from mediadock.deliveries
        where request_id = outcomes.request_id and status is not null
          and source_name is not distinct from outcomes.source_name offset 0) d
      where outcomes.changes_environment and outcomes.outcome = 'landed' and d.environment in ('live', 'sandbox')
        and (d.environment <> outcomes.environment or d.parked_reason = 'key_mismatch')
      union all
      -- An earlier delivery has the same webhook id. Only 16 others are compared, so of more than 17 the first ones may
      -- stay without the flag.
      select later.id, 'id_reused' as adds, false, null, false
      from outcomes, lateral (select * from mediadock.deliveries where id = outcomes.delivery_id offset 0) later
      where outcomes.outcome <> 'discarded' and exists (
        select from (
          select * from mediadock.deliveries
          where id between outcomes.webhook_first_id and outcomes.webhook_last_id and id <> later.id
          order by id limit 16) earlier
        where earlier.webhook_id = later.webhook_id and earlier.source_name is not distinct from later.source_name
          and earlier.received_at <= later.received_at)
      union all
      -- A delivery that carried another end than the one that stands gets the flag. It loses the flag once the provider
      -- has confirmed its end. Compares only the report's own delivery, or, with concerns_all, all of its request.
      select d.id, case when d.delivered <> outcomes.status then 'contradiction' end as adds,
        d.delivered = outcomes.status as ends_contradiction, null, false
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
      where outcomes.outcome not in (${unflagged}, ${parking})
        and (d.delivered <> outcomes.status or (outcomes.is_confirmed and 'contradiction' = any(d.flags)))`

/** Writes the changes to each delivery that they change. */
const flagged = sql`
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
