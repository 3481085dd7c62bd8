import { sql, type SQL } from 'drizzle-orm'
import type { Database } from '../../runtime/postgres/postgres.ts'
import { NoAnswerError, one, untilNotGivingWay } from '../../runtime/postgres/errors.ts'
import { flagging } from './flagging.ts'
import type { Environment } from '../domain/keys.ts'
import { toItem } from './landing.ts'
import { verdicts } from './verdict.ts'

export type MediaItem = {
  kind: 'image' | 'video' | 'audio'
  position: number
  url: string
  original_url?: string | undefined
  width?: number | undefined
  height?: number | undefined
  duration_seconds?: number | undefined
}

/** A terminal state of one request, with all that is known of it, as it is to be written. */
export type Landing = {
  requestId: string
  status: 'COMPLETED' | 'FAILED' | 'CANCELED'
  model: string | undefined
  output: unknown
  media: readonly MediaItem[]
  /** False while only what the webhook carried is known. */
  mediaComplete: boolean
  cost: number | undefined
  error: { code: string; message: string } | undefined
  createdAt: string | undefined
  completedAt: string | undefined
  source: 'webhook' | 'reconciler'
  /** Whether the provider's own result says so, which overrules a webhook. */
  confirmed: boolean
  keyName: string
  environment: Environment | undefined
  /** When to ask the provider; undefined when nothing is left to ask. */
  nextPollAt: Date | undefined
  flags: readonly string[]
  /** The delivery that brought it here, settled by the same statement if the claim still holds; a replay needs none. */
  delivery: { id: string; claims: number | undefined; first: string; last: string } | undefined
}

/**
 * - `landed`: the row became terminal, complete, or was overruled by the provider's own result
 * - `confirmed`: the provider's result was taken over where the webhook had told all of it
 * - `no_effect`: it says what is known already
 * - `contradiction`: another terminal state stands; flagged, not applied
 * - `key_mismatch`: signed with a key of the other environment; parked
 * - `raced`: the row appeared or landed in the same moment; nothing was written, try again
 */
export type LandingOutcome = 'landed' | 'confirmed' | 'no_effect' | 'contradiction' | 'key_mismatch' | 'raced'

/** What a landing wrote, row by row. */
export type Change = {
  request_id: string
  outcome: LandingOutcome
  request: { before: object | null; after: object | null }
  media: { written: object[]; removed: object[] }
}

export type Environments = { live: readonly string[]; sandbox: readonly string[] }

/** Long against any landing of ours, short for those who land by the same statement. */
const lockWaitMs = 500
/** Another landing of the same request came between our look and our write; the next look sees it. */
const maxTries = 5

/**
 * Writes results in one statement: the requests' states, their media, the
 * deliveries' flags and ends, and the NOTIFY for readers. States never go back:
 * the first terminal state stays, except that a confirmed one overrules a
 * webhook's. At most one landing per request in a call.
 */
export async function fanOut(db: Database, landings: readonly Landing[], at: At): Promise<Map<string, LandingOutcome>> {
  const outcomes = new Map<string, LandingOutcome>()
  let open = landings
  for (let tries = 1; open.length > 0 && tries <= maxTries; tries += 1) {
    const statement = sql`${writing(open, at)} select request_id, outcome from outcome, (select count(*) from told) as t`
    const rows = await untilNotGivingWay(() => db.execute<{ request_id: string; outcome: LandingOutcome }>(statement))
    // Each landing has an outcome, whatever it is.
    if (rows.length < open.length) throw new NoAnswerError(`landing ${open.length} results`)
    for (const { request_id, outcome } of rows) outcomes.set(request_id, outcome)
    open = open.filter(({ requestId }) => outcomes.get(requestId) === 'raced')
  }
  return outcomes
}

/** The same for one landing, telling what changed; with `dryRun` the statement ends in a rollback and nothing has. */
export async function fanOutExplained(db: Database, landing: Landing, { dryRun, ...at }: At & { dryRun: boolean }): Promise<Change> {
  const statement = sql`
    ${writing([landing], at)}
    select ${dryRun ? sql`mediadock.rolled_back(change)` : sql`change`} as change from (
      select jsonb_build_object(
        'request_id', outcome.request_id, 'outcome', outcome.outcome,
        'request', jsonb_build_object(
          'before', (select to_jsonb(r) - 'metadata' from mediadock.results r where r.request_id = outcome.request_id),
          'after', (select to_jsonb(w) from written w)),
        'media', jsonb_build_object(
          'written', coalesce((select jsonb_agg(to_jsonb(m)) from media_written m), '[]'),
          'removed', coalesce((select jsonb_agg(to_jsonb(m)) from media_overruled m), '[]'))) as change
      from outcome, (select count(*) from told) as t) as c`
  const rows = await untilNotGivingWay(() => db.execute<{ change: Change }>(statement)).catch((error: unknown) => [{ change: rolledBack(error) }])
  return one(rows, `landing request ${landing.requestId}`).change
}

/** The result that a dry run carried out of its rollback; any other error goes on. */
function rolledBack(error: unknown): Change {
  const cause = error instanceof Error && error.cause !== undefined ? error.cause : error
  if (cause instanceof Error && 'code' in cause && cause.code === 'MD001' && 'detail' in cause) return JSON.parse(String(cause.detail))
  throw error
}

type At = { now: Date; environments: Environments }

function writing(landings: readonly Landing[], { now, environments }: At): SQL {
  const at = sql`${now.toISOString()}::timestamptz`
  return sql`
    -- Somebody's open transaction may hold a row of one request: it is waited for shortly, since all others wait with it.
    with patience as materialized (select set_config('lock_timeout', ${`${lockWaitMs}ms`}, true)),
    item as (
      select i.* from patience, jsonb_to_recordset(${JSON.stringify(landings.map(toItem))}::jsonb) as i (
        request_id uuid, status text, model text, output jsonb, media jsonb, media_complete boolean, cost numeric,
        error_code text, error_message text, created_at timestamptz, completed_at timestamptz, source text,
        confirmed boolean, key_name text, sandbox boolean, next_poll_at timestamptz, flags jsonb,
        delivery_id uuid, claims integer, first_id uuid, last_id uuid)
      -- As many as there are: it tells the planner, who would expect 100 and read whole tables for one.
      limit ${landings.length}
    ),
    ${verdicts(environments, at)},
    written as (
      insert into mediadock.requests as r (request_id, status, model, output, media_complete, cost, error_code, error_message,
        created_at, completed_at, source, confirmed_at, key_name, key_source, sandbox, next_poll_at, tracked_at, landed_at)
      select request_id, status, model, output, media_complete, new_cost, error_code, error_message,
        created_at, completed_at, new_source, case when confirmed then ${at} end, new_key_name, new_key_source, new_sandbox, poll_at, ${at}, ${at}
      from verdict where verdict in ('landed', 'confirmed') order by request_id
      on conflict (request_id) do update set
        status = excluded.status, model = coalesce(excluded.model, r.model), output = excluded.output,
        media_complete = excluded.media_complete, cost = excluded.cost,
        error_code = excluded.error_code, error_message = excluded.error_message,
        created_at = coalesce(excluded.created_at, r.created_at), completed_at = coalesce(excluded.completed_at, r.completed_at),
        source = excluded.source, confirmed_at = excluded.confirmed_at, key_name = excluded.key_name, key_source = excluded.key_source,
        sandbox = excluded.sandbox, signed_sandbox = null, next_poll_at = excluded.next_poll_at,
        landed_at = coalesce(r.landed_at, excluded.landed_at),
        polled_at = coalesce(excluded.confirmed_at, r.polled_at),
        poll_outcome = case when excluded.confirmed_at is not null then 'result' else r.poll_outcome end
      -- What was judged above is locked since then; a row that came up meanwhile is not written over.
      where r.request_id in (select request_id from before) and r.confirmed_at is null
      returning r.request_id, r.status, r.model, r.output, r.media_complete, r.cost, r.error_code, r.error_message,
        coalesce(r.created_at, r.tracked_at) as created_at, r.completed_at, r.landed_at, r.source, r.key_name, r.sandbox
    ),
    media_written as (
      insert into mediadock.media as m (request_id, kind, position, url, original_url, width, height, duration_seconds)
      select written.request_id, o.kind, o.position, o.url, o.original_url, o.width, o.height, o.duration_seconds
      from written join item using (request_id), jsonb_to_recordset(item.media) as o (
        kind text, position integer, url text, original_url text, width integer, height integer, duration_seconds double precision)
      on conflict (request_id, kind, position) do update set url = excluded.url, original_url = excluded.original_url,
        width = excluded.width, height = excluded.height, duration_seconds = excluded.duration_seconds
      returning m.kind, m.position, m.url, m.original_url, m.width, m.height, m.duration_seconds
    ),
    media_overruled as (
      delete from mediadock.media m using written join item using (request_id)
      where m.request_id = written.request_id and not exists (
        select from jsonb_to_recordset(item.media) as o (kind text, position integer) where o.kind = m.kind and o.position = m.position)
      returning m.kind, m.position, m.url
    ),
    outcome as (
      select verdict.*, case when verdict in ('landed', 'confirmed') and written.request_id is null then 'raced' else verdict end as outcome,
             coalesce(written.status, verdict.old_status) as final_status,
             old_confirmed_at is not null or (confirmed and written.request_id is not null) as is_final
      from verdict left join written using (request_id)
    ),
    asked as (
      -- Two webhooks that contradict each other, or keys of two environments: the provider's own result decides.
      update mediadock.requests r set next_poll_at = ${at}
      from outcome where r.request_id = outcome.request_id and outcome in ('contradiction', 'key_mismatch') and r.confirmed_at is null
    ),
    settled as (
      delete from mediadock.inbox using outcome
      where inbox.delivery_id = outcome.delivery_id and outcome <> 'raced'
        and (inbox.claims = outcome.claims or outcome.claims is null)
      returning inbox.delivery_id
    ),
    released as (
      update mediadock.inbox set due_at = ${at} from outcome
      where inbox.delivery_id = outcome.delivery_id and inbox.claims = outcome.claims and outcome = 'raced'
    ),
    noted as (
      insert into mediadock.attempts (delivery_id, attempted_at, outcome, detail)
      select delivery_id, ${at}, outcome, case when claims is null then 'replay' end from outcome
      where delivery_id in (select delivery_id from settled) or (delivery_id is not null and claims is null)
      on conflict do nothing
    ),
    ${flagging(environments)},
    told as (
      select pg_notify('mediadock_results', json_build_object(
        'request_id', request_id, 'status', status, 'media_complete', media_complete)::text)
      from written where request_id = any(array(select request_id from verdict where verdict = 'landed'))
    )`
}
