import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { lockWait } from '../../platform/postgres/lock-wait.ts'
import { askForExtraPoll } from '../domain/poll-schedule.ts'
import { effectsOf, outcomesThat, writing } from './effects.ts'
import { flagChanges, flagged } from './flags-sql.ts'
import type { JudgedReport, WriteAt } from './judge.ts'
import {
  attemptsOfClaims,
  changed,
  deleting,
  dequeued,
  judged,
  mediaWritten,
  medium,
  notified,
  written,
} from './parts-sql.ts'

/*
 * The general statement, which lands every delivery that the ordinary one does not, and the results of the provider.
 * parts-sql.ts explains the parts that both statements have, and the forms that keep their plans. Parts of this
 * statement alone:
 *
 *   locked         the versions of the rows of the requests. Locked rows are read in their newest version
 *   media_removed  the media that a written request no longer has
 *   new_versions   a new version of each unconfirmed row that is only judged
 *   discarded      the deliveries that are deleted
 *   flag_changes   what a landing changes in deliveries, its own (effects.ts) and others: flags-sql.ts
 *   flagged        writes these changes
 *
 * A landing is `raced`, and is tried again, if the row changed after it was judged. While the version of an unconfirmed
 * row stands, the snapshot shows every flag that another landing has set. So a landing that only flags or parks its
 * delivery writes a new version of such a row too. Exceptions are a delivery of another source and a `discarded` one.
 *
 * `landingEffects` of effects.ts lists what each outcome changes.
 */

/** The WITH of the general statement. A reader of `outcomes` must add `everyNotification`. */
export const generalStatement = (reports: readonly JudgedReport[], at: WriteAt): SQL => sql`with
    lock_wait as materialized (${lockWait(at.waitMs)}),
    judged as (${judged(reports.map((report) => ({ ...report, ...effectsOf(report) })))}),
    locked as (${locked}),
    written as (${written(at.now, unchanged)}),
    media_written as (${mediaWritten}),
    media_removed as (${mediaRemoved}),
    outcomes as (${outcomes}),
    new_versions as (${newVersions(at.now)}),
    dequeued as (${dequeued}),
    attempted as (${attempted(at.now)}),
    discarded as (${discarded}),
    flag_changes as (${flagChanges}),
    flagged as (${flagged}),
    changed as (${changed(at.now)}),
    notified as (${notified})`

/** Outcomes that give an unconfirmed row a new version and leave its result. */
const versioned = outcomesThat(({ row }) => row === 'versioned')

/**
 * Locks the rows in one order, so that two statements that see the same rows do not deadlock. The lock lets services
 * refer to the row with a foreign key.
 */
const locked = sql`
      select request_id, xmin::text as version from mediadock.requests
      where request_id = any(array(select request_id from judged)) order by request_id for no key update`

const judgedAndLocked = sql`judged left join locked using (request_id)`

/** Without the rows that changed or were deleted since they were judged. */
const unchanged = sql`(select judged.* from ${judgedAndLocked}
        where locked.version is not distinct from judged.version) as unchanged`

/** A report whose row has changed is `raced`. All others have the outcome by the rules. */
const outcomes = sql`
      select judged.request_id, judged.via, judged.delivery_id, judged.claims, judged.was_landed, judged.source_name,
        judged.environment, judged.webhook_first_id, judged.webhook_last_id, judged.flags, judged.parks,
        judged.unparks, judged.changes_environment, judged.standing_status, judged.standing_confirmed, judged.compares_all,
        case when locked.version is distinct from judged.version
            or (judged.ruling in (${writing}) and written.request_id is null)
          then 'raced' else judged.ruling end as outcome
      from ${judgedAndLocked} left join written using (request_id)`

/** Media that a written request no longer has. */
const mediaRemoved = sql`
      delete from mediadock.media m using written join judged using (request_id)
      where m.request_id = any(array[written.request_id]) and not exists (
        select from jsonb_to_recordset(judged.media) as ${medium} where o.kind = m.kind and o.position = m.position)
      returning m.kind, m.position, m.url`

/**
 * An unconfirmed row that was only judged gets a new version. A contradiction or key mismatch also schedules an extra
 * poll, which decides it. The other polls stay.
 */
const newVersions = (now: SQL) => sql`
      update mediadock.requests r
      set ${askForExtraPoll(now, sql`outcomes.outcome in (${outcomesThat(({ extraPoll }) => extraPoll)})`)}
      from outcomes
      where r.request_id = any(array[outcomes.request_id]) and r.confirmed_at is null
        and outcomes.outcome in (${versioned})`

/** The attempt of a single replay shows whether it ended a pending or parked delivery, or repeated an end. */
const attempted = (now: SQL) => sql`
      ${attemptsOfClaims(now)}
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
      where d.id = any(array[dequeued.delivery_id]) and dequeued.outcome in (${deleting})`
