import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { statementOf } from '../../platform/postgres/postgres.ts'
import { afterLanding } from '../domain/poll-schedule.ts'
import { addChange } from '../feeding/add-change.ts'

/*
 * The parts that both landing statements have. A part reads only parts above it, in the order of `short` (short-sql.ts)
 * and `whole` (whole-sql.ts); Postgres promises no other order. All parts read the tables as they were before
 * the statement. Only a row that is locked, updated or deleted is checked in its newest version:
 *
 *   item           one row per landing: what the webhook or the result carries, who signed it, and the claim
 *   verdict        the ruling (rules-sql.ts), which is the outcome that the rules demand, and the row to write
 *   written        the rows of requests that were written, as they are now
 *   outcomes       the outcome of each landing (LandingOutcome), which every later part reads instead of the ruling
 *   media_written  the media that the landing carries
 *   dequeued       the deliveries whose claim is still held, which have left the inbox
 *   attempted      their attempts, for the on-call
 *   changed        one row for the feed
 *   notified       one NOTIFY per request
 *
 * The values, which two-statements.ts fills in:
 *
 *   :landings          the rows of `item`, as a JSON array
 *   :wait              how long to wait for a lock, such as '500ms'
 *   :limit             a literal, at least the number of landings: see atMost()
 *   :now               the time that replicas share
 *   :key_environment   the environment of the key `key_name`, as it is configured now
 *
 * A claim fences only the end of its delivery (`dequeued`). A late claimant may still write a request: that row is
 * protected by its version (xmin, in `written`) and by the verdict.
 *
 * A row is often selected by an array of one (`= any(array[x])`). This forces one index look-up per row, although the
 * statistics are usually those of an empty inbox. An array of all rows beside a join would be sorted for each row.
 */

/** The text of SQL that has no values of its own. */
export function textOf(query: SQL): string {
  const { text, params } = statementOf(query)
  if (params.length > 0) throw new Error(`a landing statement cannot contain the values of: ${text}`)
  return text
}

/**
 * The landings (Landing of row-to-write.ts). Another transaction may lock the row of a request. The whole batch waits
 * for it, so the wait is short.
 */
export const items = `
    lock_wait as materialized (select set_config('lock_timeout', :wait, true)),
    item as (
      select i.* from lock_wait, jsonb_to_recordset(:landings::jsonb) as i (
        request_id uuid, source_name text, external_id text, status text, model text, output jsonb,
        media_complete boolean, error_code text, error_message text, created_at timestamp with time zone,
        completed_at timestamp with time zone, cost numeric, key_name text, environment text, via text,
        delivery_id uuid, claims integer, webhook_first_id uuid, webhook_last_id uuid, flags jsonb, media jsonb)
      limit :limit
    )`

const writtenColumns = `request_id, source_name, external_id, status, model, output, media_complete, error_code,
        error_message, created_at, completed_at, cost, source, key_name, key_source, sandbox, confirmed_at,
        next_poll_at`

/**
 * A row that appeared or changed since its verdict is missing from `written`. Returns most columns of the view `results`, as readers see them. Missing are
 * the output that the view makes from `media`, the metadata, and what no landing changes for readers.
 */
export const written = `
    written as (
      insert into mediadock.requests as r (${writtenColumns}, tracked_at, landed_at)
      select ${writtenColumns}, :now, :now from verdict where ruling = 'landed' order by request_id
      on conflict (request_id) do update set
        status = excluded.status, output = excluded.output, media_complete = excluded.media_complete,
        cost = excluded.cost, error_code = excluded.error_code, error_message = excluded.error_message,
        source = excluded.source, confirmed_at = excluded.confirmed_at, key_name = excluded.key_name,
        key_source = excluded.key_source, sandbox = excluded.sandbox,
        external_id = coalesce(r.external_id, excluded.external_id),
        model = coalesce(excluded.model, r.model),
        created_at = coalesce(excluded.created_at, r.created_at),
        completed_at = coalesce(excluded.completed_at, r.completed_at),
        landed_at = coalesce(r.landed_at, excluded.landed_at),
        -- Kept in addition to the sandbox value that tracking or a hint stored, until the provider has decided.
        signed_sandbox = case when excluded.confirmed_at is null
          and (r.signed_sandbox is not null or (r.landed_at is null and r.sandbox is not null))
          then excluded.sandbox end,
        ${textOf(afterLanding(sql.raw(':now')))},
        polled_at = coalesce(excluded.confirmed_at, r.polled_at),
        poll_outcome = case when excluded.confirmed_at is not null then 'result' else r.poll_outcome end,
        poll_detail = case when excluded.confirmed_at is null then r.poll_detail end
      where (r.request_id, r.xmin::text) in (select request_id, version from verdict)
      returning r.status, r.model, r.output, r.media_complete, r.error_code, r.error_message, r.request_id, r.cost,
        r.completed_at, r.landed_at, r.source, r.key_name, r.sandbox,
        coalesce(r.created_at, r.tracked_at) as created_at
    )`

/** The columns of a medium that a landing carries, with the types of `media`. */
export const medium = `o (kind text, position integer, url text, original_url text, width integer, height integer,
          duration_seconds double precision)`

/** The media that the landing carries. The preview of a replay reads this part and `media_removed`. */
export const mediaWritten = `
    media_written as (
      insert into mediadock.media as m (request_id, kind, position, url, original_url, width, height, duration_seconds)
      select written.request_id, o.kind, o.position, o.url, o.original_url, o.width, o.height, o.duration_seconds
      from written join item using (request_id), jsonb_to_recordset(item.media) as ${medium}
      on conflict (request_id, kind, position) do update set
        url = excluded.url, original_url = excluded.original_url, width = excluded.width, height = excluded.height,
        duration_seconds = excluded.duration_seconds
      returning m.kind, m.position, m.url, m.original_url, m.width, m.height, m.duration_seconds
    )`

/**
 * Removes each delivery from the inbox whose claim is still held. A single replay has no claim and ends a pending
 * delivery. `failures` and `replay_id` are of the row that left.
 */
export const dequeued = `
    dequeued as (
      delete from mediadock.inbox i using outcomes
      where i.delivery_id = any(array[outcomes.delivery_id]) and outcomes.outcome <> 'raced'
        and (i.claims = outcomes.claims or outcomes.via = 'replay')
      returning i.delivery_id, i.failures, i.replay_id, outcomes.via, outcomes.claims, outcomes.outcome,
        outcomes.old_landed_at
    )`

/**
 * SQL: the detail of an attempt that a replay of many made. It names one that ended a parked delivery, which has
 * `failures` from the start (requeue() in requeue.ts), or one after failures.
 */
export const replayDetail = `case when replay_id is null then null when failures > 0 then 'replayed to its end'
        else 'replay' end`

const writtenThatLanded = `written where (written.request_id in (
        select outcomes.request_id from outcomes where outcomes.outcome = 'landed')) is true`

/** One row of changes for all requests that landed. Its id is drawn while the rows of the requests are locked. */
export const changed = `
    changed as (${textOf(addChange(sql.raw(':now'), sql.raw(writtenThatLanded)))}
    )`

/**
 * One NOTIFY per request that landed, unless Postgres's queue is nearly full, since a full queue fails the commit.
 * Postgres runs a SELECT only as far as it is read: see `everyNotification`. may_notify() is made by the migration
 * 0008_notify_guard.
 */
export const notified = `
    notified as (
      select pg_notify('mediadock_results', json_build_object(
        'request_id', request_id, 'status', status, 'media_complete', media_complete)::text)
      from ${writtenThatLanded} and (select mediadock.may_notify())
    )`

/** SQL condition that reads `notified` to its end, once. In a join with `outcomes` it might be read for each row. */
export const everyNotification = sql`(select count(*) from notified) >= 0`
