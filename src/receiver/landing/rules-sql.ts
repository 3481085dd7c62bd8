import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { environmentIn } from '../domain/environment.ts'
import type { KeyNamesByEnvironment } from '../domain/keys.ts'
import { pollLease } from '../domain/poll-schedule.ts'

/*
 * The rules that decide which webhook or result ends a request, for both landing statements. The short statement judges
 * only the first end of a request, and writes it where the ruling is `landed`. Mismatches are left to the whole one.
 *
 * The environment of a request is the first of these that exists (docs/orders.md has every case):
 *
 * 1. that of the key to which the provider gave the result
 * 2. that which tracking stored, or a hint that made the row
 * 3. that of the key that tracking named, if it is configured
 *
 * Without any, it is undecided. Then a live key outranks a sandbox key: the holder of a sandbox secret can sign any
 * request id, but must not replace what a live key signed.
 */

/**
 * The row `r` of the request as it stands. `version` changes with each write of the row. `landing_named_key`: only
 * a landing or a hint has named the key. Otherwise tracking did, or the row has no key. An environment is 'live',
 * 'sandbox', or null where it is unknown:
 *
 *   key_environment      of the key in the row, as it is configured now
 *   result_environment   of the key that signed or fetched the result in the row
 *   request_environment  of the request by the order above, or null while it is undecided
 *
 * The columns by the life of a row. The rows "landed …" are for results that are not confirmed yet.
 *
 *   row                                  sandbox                 signed_sandbox        request_environment
 *   inserted by a service                null                    null                  key_environment
 *   tracked by the receiver              of the submitting key   null                  sandbox
 *   made by a hint                       of the signing key      null                  sandbox
 *   landed without sandbox before        of the signing key      null                  key_environment if a service
 *                                                                                      named the key, or undecided
 *   landed with sandbox before           as before               of the signing key    sandbox
 *   landed first, then tracked           of the submitting key   of the signing key    sandbox
 *   confirmed                            of the fetching key     null                  sandbox
 */
export function requestRow({ live, sandbox }: KeyNamesByEnvironment): SQL {
  const keyEnvironment = sql`case
            when key_name = any(${sql.param([...live])}::text[]) then 'live'
            when key_name = any(${sql.param([...sandbox])}::text[]) then 'sandbox' end`
  const stored = environmentIn(sql`sandbox`)
  return sql`
        select request_id, source_name, status, landed_at, confirmed_at, next_poll_at, poll_leased_until, cost, source,
          key_name, key_source, key_source is not distinct from 'landed' as landing_named_key, sandbox,
          xmin::text as version, ${keyEnvironment} as key_environment,
          case when landed_at is not null then ${environmentIn(sql`coalesce(signed_sandbox, sandbox)`)} end
            as result_environment,
          case
            when confirmed_at is not null then ${stored}
            when sandbox is not null and (landed_at is null or signed_sandbox is not null) then ${stored}
            when key_source is distinct from 'landed' then ${keyEnvironment} end as request_environment
        from mediadock.requests`
}

/**
 * The conditions of the rules; null counts as false. Each one holds for the ruling only if none above it in the `case`
 * below does. So `overrules` need not check the environment of the request: `other_environment` comes first.
 * `report.environment` is that of the key that signed or fetched the report.
 */
const conditions = (rowChanged: SQL, now: SQL) => sql`lateral (select
          r.request_id is null as no_row,
          ${rowChanged} as row_changed,
          r.source_name is distinct from report.source_name as other_source,
          report.via <> 'poll' and report.environment <> r.request_environment as other_environment,
          -- A key of unknown environment may not speak for a request whose environment is known. But (1) no webhook can
          -- change a confirmed request, and (2) the request's own key may speak for it, if its environment is unknown.
          report.via <> 'poll' and report.environment is null and r.request_environment is not null
            and r.confirmed_at is null and (r.key_name <> report.key_name or r.key_environment is not null)
            as unproven_key,
          -- Only while the environment of the request is undecided. A known one decides: see other_environment.
          report.via <> 'poll' and report.environment = 'sandbox' and r.result_environment = 'live'
            and r.request_environment is null as sandbox_after_live,
          r.landed_at is null as no_end_yet,
          r.confirmed_at is null and (report.via = 'poll' or report.environment <> r.result_environment)
            as overrules,
          r.status <> report.status as other_end,
          -- For the row to write.
          (report.environment <> coalesce(r.result_environment, r.request_environment)) is true as changes_environment,
          r.key_name is null or report.environment <> coalesce(r.key_environment,
            case when r.landing_named_key then r.result_environment end) as replaces_key,
          r.next_poll_at <= ${now} and ${pollLease.isFree(now)} as poll_is_due,
          not r.landing_named_key and r.key_environment is not null and r.key_name <> report.key_name
            as not_the_tracked_key,
          report.environment is distinct from 'live' and r.request_environment is null as no_live_key
        ) as c`

/** `from`: `report`, with the row of the request as `r`. `where`: the reports to judge. */
type Judged = { rowChanged: SQL; from: SQL; where?: SQL; now: SQL }

/**
 * The ruling, and the row to write. In the `case`, the first matching line decides. `old_…` and `version` are of `r`.
 * `rowChanged`: the row of the request changed after the snapshot.
 *
 * The rulings by environment, for an unchanged row of the same source. The first matching line decides. `undecided`:
 * nothing decides the environment of the request. `-`: the request has not ended. `as ends`: no_effect for the same
 * end, or contradiction.
 *
 *   landing            its result   the request       confirmed   ruling
 *   provider's result  any          any               no          landed
 *   provider's result  any          any               yes         as ends
 *   live webhook       any          sandbox           any         key_mismatch
 *   sandbox webhook    any          live              any         key_mismatch
 *   unknown webhook    any          live or sandbox   no          key_mismatch, unless by its own key: `unproven_key`
 *   sandbox webhook    live         undecided         no          key_mismatch
 *   any webhook        -            any               no          landed
 *   live webhook       sandbox      live, undecided   no          landed
 *   sandbox webhook    live         sandbox           no          landed
 *   any webhook        any          any               any         as ends
 */
export function verdictFrom({ rowChanged, from, where = sql`true`, now }: Judged): SQL {
  return sql`
      select
        case
          when no_row then 'landed'                     -- there is nothing to contradict
          when row_changed then 'raced'                 -- judge the newer row
          when other_source then 'source_mismatch'      -- a source speaks only for its own requests
          when other_environment then 'key_mismatch'    -- a key speaks only for requests of its environment
          when unproven_key then 'key_mismatch'         -- an unknown key cannot prove its environment
          when sandbox_after_live then 'key_mismatch'   -- a sandbox key must not replace what a live key signed
          when no_end_yet then 'landed'                 -- the first end stands
          when overrules then 'landed'                  -- the provider, or an environment that passed the rules above
          when other_end then 'contradiction'           -- states never go back
          else 'no_effect' end as ruling,               -- the same end again
        report.request_id, report.source_name, report.external_id, report.status, report.model, report.output,
        report.media_complete, report.error_code, report.error_message, report.created_at, report.completed_at,
        report.delivery_id, report.claims, report.webhook_first_id, report.webhook_last_id, report.flags,
        report.environment, report.via,
        report.media, changes_environment,
        coalesce(report.cost, case when not changes_environment then r.cost end) as cost,
        case when no_end_yet or other_end or changes_environment
          then case report.via when 'poll' then 'reconciler' else 'webhook' end else r.source end as source,
        case when replaces_key then report.key_name else r.key_name end as key_name,
        case when replaces_key then 'landed' else r.key_source end as key_source,
        coalesce(coalesce(report.environment, r.request_environment) = 'sandbox', r.sandbox) as sandbox,
        case when report.via = 'poll' then ${now} end as confirmed_at,
        case
          when not report.media_complete then ${now}    -- a poll brings the rest
          when report.via = 'poll' then null            -- the provider's result is known
          when changes_environment                      -- keys of both environments have signed an end
            or poll_is_due                              -- no process has begun that poll, so it must not be lost. One
                                                        -- that is under way still lands what it finds
            or not_the_tracked_key                      -- another key signed than the one that tracking named
            or no_live_key then ${now}                  -- a sandbox key, or an unknown one, proves too little
          -- A hint made the row. Its poll may be under way, and may end without an answer, so the poll stays.
          when no_end_yet and r.landing_named_key then r.next_poll_at end as next_poll_at,
        r.version, r.status as old_status, r.landed_at as old_landed_at, r.confirmed_at as old_confirmed_at
      from ${from}, ${conditions(rowChanged, now)}
      where ${where}`
}
