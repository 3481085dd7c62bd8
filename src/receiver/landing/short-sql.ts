import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import {
  changed,
  dequeued,
  lockWait,
  mediaWritten,
  notified,
  replayDetail,
  report,
  written,
  type LandingAt,
} from './parts-sql.ts'
import type { ReportToLand } from './report-to-land.ts'
import { requestRow, verdictFrom } from './rules-sql.ts'

/**
 * The WITH of the short statement, which lands ordinary deliveries: the request has not landed, and no other delivery
 * names the request or has the same webhook id. It flags nothing, and locks nothing before it writes. A reader of
 * `outcomes` must add `everyNotification`.
 */
export const shortStatement = (reports: readonly ReportToLand[], at: LandingAt): SQL => sql`with
    lock_wait as materialized (${lockWait(at.waitMs)}),
    report as (${report(reports)}),
    verdict as (${verdict(at)}),
    written as (${written(at.now)}),
    outcomes as (${outcomes}),
    media_written as (${mediaWritten}),
    dequeued as (${dequeued}),
    attempted as (${attempted(at.now)}),
    changed as (${changed(at.now)}),
    notified as (${notified})`

/**
 * Selects the ordinary deliveries and judges them, by the rows as the snapshot shows them. Plans (parts-sql.ts): limit
 * of one, ordered range.
 */
const verdict = ({ keyNames, now }: LandingAt) =>
  verdictFrom({
    rowChanged: sql`false`,
    from: sql`report left join lateral (${requestRow(keyNames)}
        where request_id = report.request_id limit 1) as r on true`,
    where: sql`r.landed_at is null
        and (select 1 from mediadock.deliveries d
             where d.request_id = report.request_id and d.id <> report.delivery_id limit 1) is null
        and (select 1 from mediadock.deliveries d
             where d.id between report.webhook_first_id and report.webhook_last_id and d.id <> report.delivery_id
             order by d.id limit 1) is null`,
    now,
  })

/**
 * Only the reports that were written. Mismatches, and rows that changed since they were read, are left to the whole
 * statement. Plans: hashed list.
 */
const outcomes = sql`
      select request_id, via, delivery_id, claims, old_landed_at, 'landed' as outcome from verdict
      where (request_id in (select written.request_id from written)) is true`

/** The attempt of each delivery, but for one that lands at its first claim. A replayed delivery was claimed before. */
const attempted = (now: SQL) => sql`
      insert into mediadock.attempts (delivery_id, attempted_at, outcome, detail, replay_id)
      select delivery_id, ${now}, outcome, ${replayDetail}, replay_id from dequeued where claims > 1
      on conflict do nothing`
