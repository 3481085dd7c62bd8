import { atMost } from '../../platform/postgres/at-most.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { feedStatuses } from '../domain/feed-schema.ts'
import { nextExtraPoll } from '../domain/poll-rhythm.ts'
import { wayOf, type Landing } from './row-to-write.ts'

/* The parts that both landing statements share. two-statements.ts lists the inputs and columns of each part. */

/** How long a landing waits for a row that another transaction locks: much longer than a landing takes. */
export const landingLockWaitMs = 500

export function items(landings: readonly Landing[], waitMs = landingLockWaitMs): SQL {
  return sql`
    -- Another transaction may lock the row of one request. The whole batch waits for it, so the wait is short.
    patience as materialized (select set_config('lock_timeout', ${`${waitMs}ms`}, true)),
    item as (
      select i.* from patience, jsonb_to_recordset(${JSON.stringify(landings.map(toItem))}::jsonb) as i (
        request_id uuid, source_name text, external_id text,
        status text, model text, output jsonb, media jsonb, media_complete boolean, cost numeric,
        error_code text, error_message text, created_at timestamptz, completed_at timestamptz, way text,
        fetched boolean, key_name text, environment text, flags jsonb,
        delivery_id uuid, claims integer, first_id uuid, last_id uuid)
      limit ${atMost(landings.length)}
    )`
}

function toItem({ delivery, error, ...landing }: Landing) {
  return {
    request_id: landing.requestId,
    source_name: landing.sourceName ?? undefined,
    external_id: landing.externalId ?? undefined,
    status: landing.status,
    model: landing.model,
    output: landing.output,
    media: landing.media,
    media_complete: landing.mediaComplete,
    cost: landing.cost,
    error_code: error?.code,
    error_message: error?.message,
    created_at: landing.createdAt,
    completed_at: landing.completedAt,
    way: wayOf(landing),
    fetched: landing.fetched,
    key_name: landing.keyName,
    environment: landing.environment,
    flags: landing.flags,
    delivery_id: delivery?.id,
    claims: delivery?.claims,
    first_id: delivery?.first,
    last_id: delivery?.last,
  }
}

/**
 * SQL: writes requests. A row that appeared or changed since its verdict is missing from `written`. A delivery parked
 * for its key is still doubtful after its request has landed, so the request gets an extra poll.
 */
export const writeRequests = (now: SQL) => sql`
    written as (
      insert into mediadock.requests as r (request_id, source_name, external_id,
        status, model, output, media_complete, cost,
        error_code, error_message, created_at, completed_at, source, confirmed_at,
        key_name, key_source, sandbox, next_poll_at, tracked_at, landed_at)
      select request_id, source_name, external_id,
        status, model, output, media_complete, new_cost,
        error_code, error_message, created_at, completed_at, new_way, case when fetched then ${now} end,
        new_key_name, new_key_source, new_sandbox, poll_at, ${now}, ${now}
      from verdict where ruling = 'landed' order by request_id
      on conflict (request_id) do update set
        external_id = coalesce(r.external_id, excluded.external_id),
        status = excluded.status, model = coalesce(excluded.model, r.model), output = excluded.output,
        media_complete = excluded.media_complete, cost = excluded.cost,
        error_code = excluded.error_code, error_message = excluded.error_message,
        created_at = coalesce(excluded.created_at, r.created_at),
        completed_at = coalesce(excluded.completed_at, r.completed_at),
        source = excluded.source, confirmed_at = excluded.confirmed_at,
        key_name = excluded.key_name, key_source = excluded.key_source, sandbox = excluded.sandbox,
        -- Kept in addition to the sandbox value that tracking stored, until the provider has decided.
        signed_sandbox = case when excluded.confirmed_at is null
          and (r.signed_sandbox is not null or (r.landed_at is null and r.sandbox is not null))
          then excluded.sandbox end,
        next_poll_at = excluded.next_poll_at,
        doubt_poll_at = case when excluded.confirmed_at is null then coalesce(r.doubt_poll_at, (
          select ${nextExtraPoll(now)} from mediadock.deliveries d
          where d.request_id = r.request_id and d.parked_reason = 'key_mismatch' limit 1)) end,
        landed_at = coalesce(r.landed_at, excluded.landed_at),
        polled_at = coalesce(excluded.confirmed_at, r.polled_at),
        poll_outcome = case when excluded.confirmed_at is not null then 'result' else r.poll_outcome end,
        poll_detail = case when excluded.confirmed_at is null then r.poll_detail end
      where (r.request_id, r.xmin::text) in (select request_id, version from verdict)
      returning r.request_id, r.status, r.model, r.output, r.media_complete, r.cost, r.error_code, r.error_message,
        coalesce(r.created_at, r.tracked_at) as created_at, r.completed_at, r.landed_at, r.source, r.key_name, r.sandbox
    )`

/** SQL for a FROM: the media that a landing carries. */
export const carriedMedia = sql`jsonb_to_recordset(media) as o (kind text, position integer,
        url text, original_url text, width integer, height integer, duration_seconds double precision)`

export const writeMedia = sql`
    media_written as (
      insert into mediadock.media as m
        (request_id, kind, position, url, original_url, width, height, duration_seconds)
      select written.request_id, o.kind, o.position, o.url, o.original_url, o.width, o.height, o.duration_seconds
      from written join item using (request_id), ${carriedMedia}
      on conflict (request_id, kind, position) do update set url = excluded.url, original_url = excluded.original_url,
        width = excluded.width, height = excluded.height, duration_seconds = excluded.duration_seconds
      returning m.kind, m.position, m.url, m.original_url, m.width, m.height, m.duration_seconds
    )`

/** SQL: removes media that a written request no longer has. */
export const removeMedia = sql`
    media_removed as (
      delete from mediadock.media m using written join item using (request_id)
      where m.request_id = any(array[written.request_id]) and not exists (
        select from jsonb_to_recordset(item.media) as o (kind text, position integer)
        where o.kind = m.kind and o.position = m.position)
      returning m.kind, m.position, m.url
    )`

/**
 * SQL for a FROM: the rows of `written` that landed. `is true` makes the planner hash the list instead of joining it.
 */
const writtenThatLanded = sql`written
        where (request_id in (select request_id from ended where outcome = 'landed')) is true`

/**
 * SQL: ends the work on each delivery. If the claim still holds, its row leaves the inbox, or is due again at once if
 * the request raced. A single replay has no claim and settles a pending delivery. The attempt of a replay shows whether
 * it ended a pending or parked delivery, or repeated an end. A delivery that lands its request at its first claim has
 * no attempt: the time of its landing is that of the request.
 */
export const settle = (now: SQL) => sql`
    settled as (
      delete from mediadock.inbox i using ended
      where i.delivery_id = any(array[ended.delivery_id]) and outcome <> 'raced'
        and (i.claims = ended.claims or ended.claims is null)
      returning i.delivery_id, i.failures, i.replay_id, ended.claims, ended.outcome, ended.old_landed_at
    ),
    due_again as (
      update mediadock.inbox i set due_at = ${now} from ended
      where i.delivery_id = any(array[ended.delivery_id]) and i.claims = ended.claims and outcome = 'raced'
    ),
    noted as (
      insert into mediadock.attempts (delivery_id, attempted_at, outcome, detail, replay_id)
      select delivery_id, ${now}, outcome,
        case when replay_id is null then null when failures > 0 then 'replayed to its end' else 'replay' end, replay_id
      from settled where claims is not null and outcome <> 'discarded'
        and (claims > 1 or outcome <> 'landed' or old_landed_at is not null)
      union all
      select delivery_id, ${now}, outcome,
        case when delivery_id in (select delivery_id from settled)
          or (select d.parked_reason from mediadock.deliveries d where d.id = ended.delivery_id limit 1) is not null
          then 'replayed to its end' else 'replay' end, null
      from ended where delivery_id is not null and claims is null
      on conflict do nothing
    )`

const { COMPLETED, FAILED, CANCELED, REFUSED } = feedStatuses
const statusNumber = sql.raw(
  `(case status when 'COMPLETED' then ${COMPLETED} when 'FAILED' then ${FAILED} when 'REFUSED' then ${REFUSED}
    else ${CANCELED} end)::smallint`,
)

/**
 * SQL: inserts one row of `changes` for all requests of `from`, with the status of each and whether its media are
 * complete. Inserts nothing if `from` is empty. The sequencer gives committed changes their positions in the feed.
 */
export function addChange(now: SQL, from: SQL): SQL {
  return sql`
    insert into mediadock.changes (changed_at, request_ids, statuses, media_complete)
    select ${now}, array_agg(request_id), array_agg(${statusNumber}), array_agg(media_complete)
    from ${from} having count(*) > 0`
}

/** SQL: one row of changes for all requests that landed. Its id is drawn while the rows of the requests are locked. */
export const changed = (now: SQL) => sql`
    changed as (${addChange(now, writtenThatLanded)})`

/**
 * SQL: one NOTIFY per request that landed, unless Postgres's queue is nearly full, since a full queue fails the commit.
 * Postgres runs a SELECT only as far as it is read: see `everyNotification`.
 */
export const notified = sql`
    notified as (
      select pg_notify('mediadock_results', json_build_object(
        'request_id', request_id, 'status', status, 'media_complete', media_complete)::text)
      from ${writtenThatLanded} and (select mediadock.may_notify())
    )`

/** SQL condition that reads `notified` to its end, once. In a join with `ended` it might be read for each row. */
export const everyNotification = sql`(select count(*) from notified) >= 0`
