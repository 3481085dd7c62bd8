import { atMost } from '../../platform/postgres/at-most.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { sandboxOf } from '../domain/environment.ts'
import { afterLanding } from '../domain/poll-schedule.ts'
import { addChange } from '../feeding/add-change.ts'
import { outcomesThat, writing, type Effects } from './effects.ts'
import type { JudgedReport } from './judge.ts'

/*
 * The parts that both landing statements have. ordinary-sql.ts and general-sql.ts list their parts in order, each under
 * the name of its constant. A part reads only parts above it; Postgres promises no other order. All parts read the tables as they were before the statement. Only a row that is locked, updated or
 * deleted is checked in its newest version:
 *
 *   judged         one row per report to land, with its verdict: judgedColumns lists what it holds. The ruling (rules.ts,
 *                  refine-rulings.ts) is the outcome that the rules demand
 *   written        the rows of requests that were written, as they are now
 *   outcomes       the outcome of each report (LandingOutcome), which every later part reads instead of the ruling
 *   media_written  the media that the report carries
 *   dequeued       the deliveries whose claim is still held, which have left the inbox
 *   attempted      their attempts, for the on-call
 *   changed        one row for the feed
 *   notified       one NOTIFY per request
 *
 * A claim fences only the end of its delivery (`dequeued`). A late claimant may still write a request: that row is
 * protected by its version (xmin), which is that of the row that was judged.
 *
 * Plans. The planner knows the tables by outdated statistics, usually those of an empty inbox. These forms leave it
 * only the look-up by an index. They change no result:
 *
 *   array of one    `id = any(array[x])`: one look-up for each row. An array of all rows would be sorted for each
 *   limit of one    a subquery with `limit 1`: one look-up, never a scan of the table
 *   ordered range   `id between … order by id limit n`: reads the range of ids in order. The planner of Postgres 18 may
 *                   otherwise skip through the index by time, and then read all of it
 *   hashed list     `(x in (select …)) is true`: the list is hashed, not joined
 *   fenced          a subquery with `offset 0` is not merged into a join
 *   counted once    everyNotification reads `notified` apart. In a join it might be read once for each row
 */

type Judged = Omit<JudgedReport, 'reporting_key' | 'was_status' | 'was_complete' | 'was_confirmed'> & Effects

/** The columns of `judged`, with their types in Postgres. The ordinary statement leaves those of Effects null. */
const judgedColumns: Record<keyof Judged, string> = {
  // The report and its origin.
  request_id: 'uuid',
  external_id: 'text',
  source_name: 'text',
  via: 'text',
  environment: 'text',
  delivery_id: 'uuid',
  claims: 'integer',
  webhook_first_id: 'uuid',
  webhook_last_id: 'uuid',
  flags: 'jsonb',
  status: 'text',
  model: 'text',
  output: 'jsonb',
  media: 'jsonb',
  media_complete: 'boolean',
  error_code: 'text',
  error_message: 'text',
  created_at: 'timestamptz',
  completed_at: 'timestamptz',
  // The row that was judged.
  version: 'text',
  was_landed: 'boolean',
  // The verdict: the ruling and the row to write.
  ruling: 'text',
  changes_environment: 'boolean',
  key_name: 'text',
  key_source: 'text',
  request_environment: 'text',
  result_environment: 'text',
  ended_by: 'text',
  cost: 'numeric',
  is_polled_now: 'boolean',
  next_poll_at: 'timestamptz',
  // The effects.
  standing_status: 'text',
  standing_confirmed: 'boolean',
  compares_all: 'boolean',
  parks: 'text',
  unparks: 'boolean',
}
const judgedRecord = sql.raw(
  Object.entries(judgedColumns)
    .map((column) => column.join(' '))
    .join(', '),
)

/** The reports to land, with their verdicts. */
export const judged = (reports: readonly JudgedReport[], where: SQL = sql`true`) => sql`
      select given.* from lock_wait,
        jsonb_to_recordset(${JSON.stringify(reports)}::jsonb) as given (${judgedRecord})
      where ${where} limit ${atMost(reports.length)}`

const writtenColumns = sql`request_id, source_name, external_id, status, model, output, media_complete, error_code,
        error_message, created_at, completed_at, cost, key_name, key_source`

/**
 * Writes the rows of requests. A row that appeared or changed since it was judged is left alone, so it is missing here.
 * Returns the columns of the view `results` that a landing writes, for the later parts and for the preview of a replay
 * (replay.ts). The output that the view makes from `media` is missing.
 */
export const written = (now: SQL, from: SQL = sql`judged`) => sql`
      insert into mediadock.requests as r (${writtenColumns}, source, sandbox, signed_sandbox, confirmed_at, next_poll_at,
        tracked_at, landed_at)
      select ${writtenColumns}, ended_by, request_environment = 'sandbox', result_environment = 'sandbox',
        case when via = 'poll' then ${now} end,
        case when is_polled_now then ${now} else next_poll_at end, ${now}, ${now}
      from ${from} where ruling in (${writing}) order by request_id
      on conflict (request_id) do update set
        status = excluded.status, output = excluded.output, media_complete = excluded.media_complete,
        cost = excluded.cost, error_code = excluded.error_code, error_message = excluded.error_message,
        source = excluded.source, confirmed_at = excluded.confirmed_at, key_name = excluded.key_name,
        key_source = excluded.key_source, sandbox = excluded.sandbox, signed_sandbox = excluded.signed_sandbox,
        external_id = coalesce(r.external_id, excluded.external_id),
        model = coalesce(excluded.model, r.model),
        created_at = coalesce(excluded.created_at, r.created_at),
        completed_at = coalesce(excluded.completed_at, r.completed_at),
        landed_at = coalesce(r.landed_at, excluded.landed_at),
        ${afterLanding(now)},
        polled_at = coalesce(excluded.confirmed_at, r.polled_at),
        poll_outcome = case when excluded.confirmed_at is not null then 'result' else r.poll_outcome end,
        poll_detail = case when excluded.confirmed_at is null then r.poll_detail end
      where (r.request_id, r.xmin::text) in (select request_id, version from judged)
      returning r.status, r.model, r.output, r.media_complete, r.error_code, r.error_message, r.request_id, r.cost,
        r.completed_at, r.landed_at, r.source, r.key_name,
        ${sandboxOf('r')} as sandbox, coalesce(r.created_at, r.tracked_at) as created_at`

/** The columns of a medium that a report carries, with the types of `media`. */
export const medium = sql`o (kind text, position integer, url text, original_url text, width integer, height integer,
          duration_seconds double precision)`

/** Writes the media that the report carries. The preview of a replay reads this part and `media_removed`. */
export const mediaWritten = sql`
      insert into mediadock.media as m (request_id, kind, position, url, original_url, width, height, duration_seconds)
      select written.request_id, o.kind, o.position, o.url, o.original_url, o.width, o.height, o.duration_seconds
      from written join judged using (request_id), jsonb_to_recordset(judged.media) as ${medium}
      on conflict (request_id, kind, position) do update set
        url = excluded.url, original_url = excluded.original_url, width = excluded.width, height = excluded.height,
        duration_seconds = excluded.duration_seconds
      returning m.kind, m.position, m.url, m.original_url, m.width, m.height, m.duration_seconds`

/**
 * Removes each delivery from the inbox whose claim is still held. A single replay has no claim and ends a pending
 * delivery. `failures` and `replay_id` are of the row that left.
 */
export const dequeued = sql`
      delete from mediadock.inbox i using outcomes
      where i.delivery_id = any(array[outcomes.delivery_id]) and outcomes.outcome not in (${outcomesThat(({ delivery }) => delivery === 'waits')})
        and (i.claims = outcomes.claims or outcomes.via = 'replay')
      returning i.delivery_id, i.failures, i.replay_id, outcomes.via, outcomes.claims, outcomes.outcome,
        outcomes.was_landed`

/**
 * SQL: the detail of an attempt that a replay of many made. It names one that ended a parked delivery, which has
 * `failures` from the start (requeue() in requeue.ts), or one after failures.
 */
const replayDetail = sql`case when replay_id is null then null when failures > 0 then 'replayed to its end'
        else 'replay' end`

/** The outcomes that delete the delivery. */
export const deleting = outcomesThat(({ delivery }) => delivery === 'deleted')

/** The attempt of each claimed delivery, but for one that lands its request at its first claim. */
export const attemptsOfClaims = (now: SQL) => sql`
      insert into mediadock.attempts (delivery_id, attempted_at, outcome, detail, replay_id)
      select delivery_id, ${now}, outcome, ${replayDetail}, replay_id from dequeued
      where via = 'delivery' and outcome not in (${deleting}) and (claims > 1 or outcome <> 'landed' or was_landed)`

/** Plans: hashed list. */
const writtenThatLanded = sql`written where (written.request_id in (
        select outcomes.request_id from outcomes where outcomes.outcome in (${outcomesThat(({ feed }) => feed)}))) is true`

/** One row of changes for all requests that landed. Its id is drawn while the rows of the requests are locked. */
export const changed = (now: SQL) => addChange(now, writtenThatLanded)

/**
 * One NOTIFY per request that landed, unless Postgres's queue is nearly full, since a full queue fails the commit.
 * Postgres runs a SELECT only as far as it is read: see `everyNotification`. may_notify() is made by the migration
 * 0008_notify_guard.
 */
export const notified = sql`
      select pg_notify('mediadock_results', json_build_object(
        'request_id', request_id, 'status', status, 'media_complete', media_complete)::text)
      from ${writtenThatLanded} and (select mediadock.may_notify())`

/** SQL condition that reads `notified` to its end. Plans: counted once. */
export const everyNotification = sql`(select count(*) from notified) >= 0`
