import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, StringChunk, type SQL } from '../../platform/postgres/drizzle.ts'
import { feedStatuses } from '../domain/feed-schema.ts'
import { nextExtraPoll } from '../domain/poll-rhythm.ts'
import * as schema from '../domain/schema.ts'
import {
  ended,
  item,
  itemTypes,
  mediaNames,
  mediaTypes,
  o,
  settled,
  toWrite,
  verdict,
  written,
  writtenAsStored,
} from './parts.ts'
import { wayOf, type Landing } from './row-to-write.ts'

/* The writes of the two landing statements. parts.ts lists the parts that they read, and their columns. */

const requests = columnsOf(schema.requests)
const r = columnsOf(schema.requests, 'r')
const media = columnsOf(schema.media)
const m = columnsOf(schema.media, 'm')
const inbox = columnsOf(schema.inbox)
const i = columnsOf(schema.inbox, 'i')
const d = columnsOf(schema.deliveries, 'd')
const attempts = columnsOf(schema.attempts)

/** How long a landing waits for a row that another transaction locks: much longer than a landing takes. */
export const landingLockWaitMs = 500

/** SQL: `item`. `limit`: see atMost(). */
export const items = (landings: SQL, waitMs: SQL, limit: SQL) => sql`
    -- Another transaction may lock the row of one request. The whole batch waits for it, so the wait is short.
    patience as materialized (select set_config('lock_timeout', ${waitMs}, true)),
    item as (
      select i.* from patience, jsonb_to_recordset(${landings}::jsonb) as i (${itemTypes})
      limit ${limit}
    )`

/** Returns the row of `item` for a landing. */
export function toItem({ delivery, error, ...landing }: Landing): Record<keyof typeof item, unknown> {
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
    source: wayOf(landing),
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

/** SQL for SET: takes these columns from the row that met another. */
const fromExcluded = (...names: (keyof typeof requests | keyof typeof m)[]) =>
  new StringChunk(names.map((name) => `${name} = excluded.${name}`).join(', '))

/**
 * SQL: writes requests. A row that appeared or changed since its verdict is missing from `written`. A delivery parked
 * for its key is still doubtful after its request has landed, so the request gets an extra poll.
 */
export const writeRequests = (now: SQL) => sql`
    written as (
      insert into mediadock.requests as r (${list(requests, ...toWrite, 'tracked_at', 'landed_at')})
      select ${list(verdict, ...toWrite)}, ${now}, ${now}
      from verdict where ${verdict.ruling} = 'landed' order by ${verdict.request_id}
      on conflict (request_id) do update set
        ${fromExcluded('status', 'output', 'media_complete', 'cost', 'error_code', 'error_message', 'source')},
        ${fromExcluded('confirmed_at', 'key_name', 'key_source', 'sandbox', 'next_poll_at')},
        ${requests.external_id} = coalesce(${r.external_id}, excluded.external_id),
        ${requests.model} = coalesce(excluded.model, ${r.model}),
        ${requests.created_at} = coalesce(excluded.created_at, ${r.created_at}),
        ${requests.completed_at} = coalesce(excluded.completed_at, ${r.completed_at}),
        ${requests.landed_at} = coalesce(${r.landed_at}, excluded.landed_at),
        -- Kept in addition to the sandbox value that tracking stored, until the provider has decided.
        ${requests.signed_sandbox} = case when excluded.confirmed_at is null
          and (${r.signed_sandbox} is not null or (${r.landed_at} is null and ${r.sandbox} is not null))
          then excluded.sandbox end,
        ${requests.doubt_poll_at} = case when excluded.confirmed_at is null then coalesce(${r.doubt_poll_at}, (
          select ${nextExtraPoll(now)} from mediadock.deliveries d
          where ${d.request_id} = ${r.request_id} and ${d.parked_reason} = 'key_mismatch' limit 1)) end,
        ${requests.polled_at} = coalesce(excluded.confirmed_at, ${r.polled_at}),
        ${requests.poll_outcome} = case when excluded.confirmed_at is not null then 'result' else ${r.poll_outcome} end,
        ${requests.poll_detail} = case when excluded.confirmed_at is null then ${r.poll_detail} end
      where (${r.request_id}, r.xmin::text) in (select ${verdict.request_id}, ${verdict.version} from verdict)
      returning ${list(r, ...writtenAsStored)}, coalesce(${r.created_at}, ${r.tracked_at}) as created_at
    )`

/** SQL for a FROM: the media that a landing carries. */
export const carriedMedia = (media: StringChunk) => sql`jsonb_to_recordset(${media}) as o (${mediaTypes})`

export const writeMedia = sql`
    media_written as (
      insert into mediadock.media as m (${list(media, 'request_id', ...mediaNames)})
      select ${written.request_id}, ${list(o, ...mediaNames)}
      from written join item using (request_id), ${carriedMedia(item.media)}
      on conflict (${list(media, 'request_id', 'kind', 'position')}) do update set
        ${fromExcluded('url', 'original_url', 'width', 'height', 'duration_seconds')}
      returning ${list(m, ...mediaNames)}
    )`

/** SQL: removes media that a written request no longer has. */
export const removeMedia = sql`
    media_removed as (
      delete from mediadock.media m using written join item using (request_id)
      where ${m.request_id} = any(array[${written.request_id}]) and not exists (
        select from ${carriedMedia(item.media)} where ${o.kind} = ${m.kind} and ${o.position} = ${m.position})
      returning ${list(m, 'kind', 'position', 'url')}
    )`

/**
 * SQL for a FROM: the rows of `written` that landed. `is true` makes the planner hash the list instead of joining it.
 */
const writtenThatLanded = sql`written where (${written.request_id} in (
        select ${ended.request_id} from ended where ${ended.outcome} = 'landed')) is true`

/**
 * SQL: removes each delivery from the inbox whose claim still holds. A single replay has no claim and ends a pending
 * delivery.
 */
export const settle = sql`
    settled as (
      delete from mediadock.inbox i using ended
      where ${i.delivery_id} = any(array[${ended.delivery_id}]) and ${ended.outcome} <> 'raced'
        and (${i.claims} = ${ended.claims} or ${ended.claims} is null)
      returning ${list(i, 'delivery_id', 'failures', 'replay_id')},
        ${list(ended, 'claims', 'outcome', 'old_landed_at')}
    )`

/** SQL: makes each delivery due at once whose request raced. */
export const landAgain = (now: SQL) => sql`
    due_again as (
      update mediadock.inbox i set ${inbox.due_at} = ${now} from ended
      where ${i.delivery_id} = any(array[${ended.delivery_id}]) and ${i.claims} = ${ended.claims}
        and ${ended.outcome} = 'raced'
    )`

/**
 * SQL: notes the round of each delivery that ended. The attempt of a replay shows whether it ended a pending or parked
 * delivery, or repeated an end. A delivery that lands its request at its first claim has no attempt: the time of its
 * landing is that of the request.
 */
export const noteAttempts = (now: SQL) => sql`
    noted as (
      insert into mediadock.attempts
        (${list(attempts, 'delivery_id', 'attempted_at', 'outcome', 'detail', 'replay_id')})
      select ${settled.delivery_id}, ${now}, ${settled.outcome},
        case when ${settled.replay_id} is null then null
          when ${settled.failures} > 0 then 'replayed to its end' else 'replay' end, ${settled.replay_id}
      from settled where ${settled.claims} is not null and ${settled.outcome} <> 'discarded'
        and (${settled.claims} > 1 or ${settled.outcome} <> 'landed' or ${settled.old_landed_at} is not null)
      union all
      select ${ended.delivery_id}, ${now}, ${ended.outcome},
        case when ${ended.delivery_id} in (select ${settled.delivery_id} from settled)
          or (select ${d.parked_reason} from mediadock.deliveries d
              where ${d.id} = ${ended.delivery_id} limit 1) is not null
          then 'replayed to its end' else 'replay' end, null
      from ended where ${ended.delivery_id} is not null and ${ended.claims} is null
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
