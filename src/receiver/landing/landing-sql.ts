import { sql } from '../../platform/postgres/drizzle.ts'
import { statementOf } from '../../platform/postgres/postgres.ts'
import { nextExtraPoll } from '../domain/poll-rhythm.ts'

/*
 * The text of the two statements that land results. The parts that judge a landing and write its result are here. The
 * parts that follow from its outcome are in outcome-sql.ts, with the lists of the parts. Each part reads only parts
 * above it; Postgres promises no other order. All parts see the tables as they were before the statement, but `locked`
 * and the ON CONFLICT of `written` see the newest version of a row:
 *
 *   item          one row per landing: what the webhook or the result carries, who signed it, the claim of its delivery
 *   r             the row of the request as it was, with the environments of its result, of the request and of its key
 *   c             the conditions of the rules, each under a name
 *   verdict       the ruling, which is the outcome that the rules demand, and the row of `requests` to write
 *   written       the rows of requests that were written, as they are now
 *   outcomes      the outcome of each landing (LandingOutcome), which every later part reads instead of the ruling
 *   dequeued       the deliveries whose claim is still held, which have left the inbox
 *   flag_changes  what each rule changes in a delivery: flags, and whether it is parked
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
 * A landing is `raced`, and runs again, if the row changed after its snapshot. That snapshot is also too old to show
 * the flags that the other landing set. So a landing that only flags or parks its delivery writes a new version of the
 * row too, while the row is unconfirmed. Exceptions are a delivery of another source and a `discarded` one.
 *
 * A row is often selected by an array of one (`= any(array[x])`). This forces one index look-up per row, although the
 * statistics are usually those of an empty inbox. An array of all rows beside a join would be sorted for each row.
 */

/**
 * Another transaction may lock the row of a request. The whole batch waits for it, so the wait is short. `environment`
 * is that of the key that signed or fetched. `source` and `fetched`: see wayOf() and Landing. `first_id` and `last_id`
 * bound the ids of the delivery's webhook id.
 */
export const items = `
    patience as materialized (select set_config('lock_timeout', :wait, true)),
    item as (
      select i.* from patience, jsonb_to_recordset(:landings::jsonb) as i (
        request_id uuid, source_name text, external_id text, status text, model text, output jsonb,
        media_complete boolean, error_code text, error_message text, created_at timestamp with time zone,
        completed_at timestamp with time zone, cost numeric, source text, key_name text,
        delivery_id uuid, claims integer, first_id uuid, last_id uuid, flags jsonb,
        environment text, fetched boolean, media jsonb)
      limit :limit
    )`

/** SQL: the environment that a column `sandbox` records. */
const environmentIn = (sandbox: string) => `case ${sandbox} when true then 'sandbox' when false then 'live' end`

/**
 * `r`. `version` changes with each write of the row. `key_is_tracked`: tracking named the key, not only a signature. An
 * environment is 'live', 'sandbox', or null where it is unknown:
 *
 *   key_environment      of the key in the row, as it is configured now
 *   result_environment   of the key that signed or fetched the result in the row
 *   request_environment  of the request, as docs/orders.md decides it, or null while it is open. In a row that has
 *                        landed, `signed_sandbox` shows that `sandbox` came from tracking
 */
const row = `
        select request_id, source_name, status, landed_at, confirmed_at, next_poll_at, cost, source, key_name,
          key_source, key_source is distinct from 'landed' as key_is_tracked, sandbox, xmin::text as version,
          :key_environment as key_environment,
          case when landed_at is not null then ${environmentIn('coalesce(signed_sandbox, sandbox)')} end
            as result_environment,
          case
            when confirmed_at is not null then ${environmentIn('sandbox')}
            when sandbox is not null and (landed_at is null or signed_sandbox is not null)
              then ${environmentIn('sandbox')}
            when key_source is distinct from 'landed' then :key_environment end as request_environment
        from mediadock.requests`

/**
 * The conditions of the rules; null counts as false. docs/orders.md explains those of the ruling. `item.environment` is
 * that of the key that signed or fetched the landing.
 */
const conditions = (rowChanged: string) => `lateral (select
          r.request_id is null as no_row,
          ${rowChanged} as row_changed,
          r.source_name is distinct from item.source_name as other_source,
          not item.fetched and item.environment <> r.request_environment as other_environment,
          -- Two exceptions. No webhook can change a confirmed request. And the request's own key may speak for it, if
          -- the settings do not show the environment of that key.
          not item.fetched and item.environment is null and r.request_environment is not null
            and r.confirmed_at is null and (r.key_name <> item.key_name or r.key_environment is not null)
            as unproven_key,
          not item.fetched and item.environment = 'sandbox' and r.result_environment = 'live'
            and r.request_environment is null as sandbox_after_live,
          r.landed_at is null as no_end_yet,
          r.confirmed_at is null and (item.fetched or item.environment <> r.result_environment) as overrules,
          r.status <> item.status as other_end,
          -- For the row to write.
          (item.environment <> coalesce(r.result_environment, r.request_environment)) is true as changes_environment,
          r.key_name is null or item.environment <> coalesce(r.key_environment,
            case when not r.key_is_tracked then r.result_environment end) as replaces_key,
          r.next_poll_at <= :now as poll_is_due,
          r.key_is_tracked and r.key_environment is not null and r.key_name <> item.key_name as not_the_tracked_key,
          item.environment is distinct from 'live' and r.request_environment is null as no_live_key
        ) as c`

/**
 * The ruling, of which the first line that applies holds, and the row to write. `old_…` and `version` are of `r`.
 * `rowChanged`: the row of the request changed after the snapshot.
 *
 * The rulings by environment, for an unchanged row of the same source; the first line that applies holds. `open`: the
 * environment is not decided. `-`: the request has not ended. `as ends`: no_effect for the same end, or contradiction.
 *
 *   landing            its result   the request       confirmed   ruling
 *   provider's result  any          any               no          landed
 *   provider's result  any          any               yes         as ends
 *   live webhook       any          sandbox           any         key_mismatch
 *   sandbox webhook    any          live              any         key_mismatch
 *   unknown webhook    any          live or sandbox   no          key_mismatch, unless by its own key: `unproven_key`
 *   sandbox webhook    live         open              no          key_mismatch
 *   any webhook        -            any               no          landed
 *   live webhook       sandbox      live or open      no          landed
 *   sandbox webhook    live         sandbox           no          landed
 *   any webhook        any          any               any         as ends
 */
const verdict = ({ rowChanged, from, where = 'true' }: { rowChanged: string; from: string; where?: string }) => `
    verdict as (
      select
        case
          when no_row then 'landed'                     -- there is nothing to contradict
          when row_changed then 'raced'                 -- judge the newer row
          when other_source then 'source_mismatch'      -- a source speaks only for its own requests
          when other_environment then 'key_mismatch'    -- a key speaks only for requests of its environment
          when unproven_key then 'key_mismatch'         -- an unknown key cannot prove its environment
          when sandbox_after_live then 'key_mismatch'   -- a sandbox key must not replace what a live key signed
          when no_end_yet then 'landed'                 -- the first end stands
          when overrules then 'landed'                  -- the provider, or a key of the right environment, decides
          when other_end then 'contradiction'           -- states never go back
          else 'no_effect' end as ruling,               -- the same end again
        item.request_id, item.source_name, item.external_id, item.status, item.model, item.output,
        item.media_complete, item.error_code, item.error_message, item.created_at, item.completed_at, item.delivery_id,
        item.claims, item.first_id, item.last_id, item.flags, item.environment, item.fetched, item.media,
        changes_environment,
        coalesce(item.cost, case when not changes_environment then r.cost end) as cost,
        case when no_end_yet or other_end or changes_environment then item.source else r.source end as source,
        case when replaces_key then item.key_name else r.key_name end as key_name,
        case when replaces_key then 'landed' else r.key_source end as key_source,
        coalesce(coalesce(item.environment, r.request_environment) = 'sandbox', r.sandbox) as sandbox,
        case when item.fetched then :now end as confirmed_at,
        case
          when not item.media_complete then :now
          when item.fetched then null
          -- An unconfirmed end needs the provider's word at once.
          when changes_environment or poll_is_due or not_the_tracked_key or no_live_key then :now
          -- A hint made the row. Its poll may be under way, and may end without an answer.
          when no_end_yet and not r.key_is_tracked then r.next_poll_at end as next_poll_at,
        r.version, r.status as old_status, r.landed_at as old_landed_at, r.confirmed_at as old_confirmed_at
      from ${from}, ${conditions(rowChanged)}
      where ${where}
    )`

/**
 * For the whole statement: the rows of requests, locked. They may be newer than the snapshot, which shows `seen`. Rows
 * are locked in one order: two statements may wait for one another, but never deadlock.
 */
export const lockedRows = `
    seen as (
      select request_id, xmin::text as version from mediadock.requests
      where request_id = any(array(select request_id from item))
    ),
    locked as (${row}
        where request_id = any(array(select request_id from item)) order by request_id for update
    )`

export const verdictOfLocked = verdict({
  rowChanged: 'r.version is distinct from seen.version',
  from: 'item left join locked as r using (request_id) left join seen using (request_id)',
})

/**
 * For the short statement: by rows as the snapshot shows them, for ordinary deliveries. The request has not landed, and
 * it and the webhook id have no other delivery. Each look-up has its own `limit 1`, so that outdated statistics never
 * make the planner scan a table. The range of ids is read in order, since the planner of Postgres 18 may otherwise
 * choose to skip through the index by time, and then read all of it.
 */
export const verdictAsSeen = verdict({
  rowChanged: 'false',
  from: `item left join lateral (${row} where request_id = item.request_id limit 1) as r on true`,
  where: `r.landed_at is null
        and (select 1 from mediadock.deliveries d
             where d.request_id = item.request_id and d.id <> item.delivery_id limit 1) is null
        and (select 1 from mediadock.deliveries d
             where d.id between item.first_id and item.last_id and d.id <> item.delivery_id
             order by d.id limit 1) is null`,
})

/** The time of the next extra poll of the request `r`, which the column `doubt_poll_at` stores. */
export const extraPollAt = statementOf(nextExtraPoll(sql.raw(':now'))).text

const writtenColumns = `request_id, source_name, external_id, status, model, output, media_complete, error_code,
        error_message, created_at, completed_at, cost, source, key_name, key_source, sandbox, confirmed_at,
        next_poll_at`

/**
 * A row that appeared or changed since its verdict is missing from `written`. A request that lands while a delivery is
 * parked for its key gets an extra poll. Returns most columns of the view `results`, as readers see them. Missing are
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
        key_source = excluded.key_source, sandbox = excluded.sandbox, next_poll_at = excluded.next_poll_at,
        external_id = coalesce(r.external_id, excluded.external_id),
        model = coalesce(excluded.model, r.model),
        created_at = coalesce(excluded.created_at, r.created_at),
        completed_at = coalesce(excluded.completed_at, r.completed_at),
        landed_at = coalesce(r.landed_at, excluded.landed_at),
        -- Kept in addition to the sandbox value that tracking stored, until the provider has decided.
        signed_sandbox = case when excluded.confirmed_at is null
          and (r.signed_sandbox is not null or (r.landed_at is null and r.sandbox is not null))
          then excluded.sandbox end,
        doubt_poll_at = case when excluded.confirmed_at is null then coalesce(r.doubt_poll_at, (
          select ${extraPollAt} from mediadock.deliveries d
          where d.request_id = r.request_id and d.parked_reason = 'key_mismatch' limit 1)) end,
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

/** The media that the landing carries. The preview of a replay reads this part and the next one. */
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

/** Media that a written request no longer has. */
export const mediaRemoved = `
    media_removed as (
      delete from mediadock.media m using written join item using (request_id)
      where m.request_id = any(array[written.request_id]) and not exists (
        select from jsonb_to_recordset(item.media) as ${medium} where o.kind = m.kind and o.position = m.position)
      returning m.kind, m.position, m.url
    )`
