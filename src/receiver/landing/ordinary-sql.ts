import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { lockWait } from '../../platform/postgres/lock-wait.ts'
import type { JudgedReport, WriteAt } from './judge.ts'
import { attemptsOfClaims, changed, dequeued, judged, mediaWritten, notified, written } from './parts-sql.ts'

/**
 * The WITH of the ordinary statement: the request has not landed, and no other delivery names the request or has the
 * same webhook id. It flags nothing, and locks nothing before it writes. A reader of `outcomes` must add
 * `everyNotification`.
 */
export const ordinaryStatement = (reports: readonly JudgedReport[], at: WriteAt): SQL => sql`with
    lock_wait as materialized (${lockWait(at.waitMs)}),
    judged as (${judged(reports, isAlone)}),
    written as (${written(at.now)}),
    outcomes as (${outcomes}),
    media_written as (${mediaWritten}),
    dequeued as (${dequeued}),
    attempted as (${attemptsOfClaims(at.now)} on conflict do nothing),
    changed as (${changed(at.now)}),
    notified as (${notified})`

/** SQL condition: no other delivery names the request or has the same webhook id. Plans: limit of one, ordered range. */
const isAlone = sql`(select 1 from mediadock.deliveries d
             where d.request_id = given.request_id and d.id <> given.delivery_id limit 1) is null
        and (select 1 from mediadock.deliveries d
             where d.id between given.webhook_first_id and given.webhook_last_id and d.id <> given.delivery_id
             order by d.id limit 1) is null`

/** Only the reports that were written. Rows that changed since they were read are left to the general statement. */
const outcomes = sql`
      select request_id, via, delivery_id, claims, was_landed, ruling as outcome from judged
      where (request_id in (select written.request_id from written)) is true`
