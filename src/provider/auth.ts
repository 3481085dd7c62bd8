import type { IncomingHttpHeaders } from 'node:http'
import { sql } from 'drizzle-orm'
import { HttpError } from '../runtime/http.ts'
import type { Database } from '../runtime/postgres.ts'
import type { Faults } from './faults.ts'
import type { Scope } from './keys.ts'
import { rateWindow, type RateLimits, type RateWindow } from './rate-limit.ts'
import type { Environment } from './schema.ts'
import { sha256 } from './secret-box.ts'

/** Who is asking, and what may vary by that. */
export type Caller = {
  keyId: string
  accountId: string
  environment: Environment
  scopes: Scope[]
  faults: Faults | null
  /** Models that were switched on or off in this environment. */
  activations: Record<string, boolean>
}

export type Identified = { caller: Caller; rate: RateWindow }

const authorizationPattern = /^(?:Bearer|Key) +(\S+) *$/i
const maxKeyLength = 200

/**
 * The API key of a request in any of the spec's three forms (Authentication 1).
 * Undefined when there is none, or when two credentials disagree.
 */
export function readApiKey(headers: IncomingHttpHeaders): string | undefined {
  const authorization = headers.authorization
  const fromAuthorization = authorization === undefined ? undefined : (authorizationPattern.exec(authorization)?.[1] ?? '')
  const custom = headers['x-api-key']
  const fromCustom = custom === undefined ? undefined : String(custom).trim()
  if (fromAuthorization !== undefined && fromCustom !== undefined && fromAuthorization !== fromCustom) return undefined
  const key = fromAuthorization ?? fromCustom
  return key === undefined || key === '' || key.length > maxKeyLength ? undefined : key
}

export function invalidApiKey(): HttpError {
  return new HttpError(401, 'invalid_api_key', 'the API key is missing, wrong or revoked')
}

type Row = {
  key_id: string
  account_id: string
  environment: Environment
  scopes: Scope[]
  faults: Faults | null
  activations: Record<string, boolean> | null
  key_hits: number
  key_started: string
  account_hits: number | null
  account_started: string | null
}

/**
 * Finds the caller of an API key and counts the request, in one statement:
 * revocation takes effect at once, and all processes share the same count.
 * A request that its key's window refuses is not counted against the account.
 */
export async function identify(db: Database, apiKey: string, limits: RateLimits, now: Date): Promise<Identified | undefined> {
  const at = now.toISOString()
  const [row] = await db.execute<Row>(sql`
    with known as (
      select id, account_id, environment, scopes, faults
      from provider.api_keys where key_hash = ${sha256(apiKey)} and revoked_at is null
    ), key_window as (${countHit(sql`select 'key:' || id from known`, at)}
    ), account_window as (${countHit(
      sql`select 'account:' || account_id from known, key_window where key_window.hits <= ${limits.perKey}::int`,
      at,
    )})
    select k.id as key_id, k.account_id, k.environment, k.scopes, k.faults,
      (select jsonb_object_agg(slug, enabled) from provider.model_activations m where m.environment = k.environment) as activations,
      w.hits as key_hits, w.started_at as key_started, a.hits as account_hits, a.started_at as account_started
    from known k cross join key_window w left join account_window a on true`)
  if (row === undefined) return undefined
  const { key_id: keyId, account_id: accountId, environment, scopes, faults, activations } = row
  const keyCount = { hits: row.key_hits, startedAt: new Date(row.key_started) }
  const accountCount =
    row.account_hits === null || row.account_started === null
      ? undefined
      : { hits: row.account_hits, startedAt: new Date(row.account_started) }
  return {
    caller: { keyId, accountId, environment, scopes, faults, activations: activations ?? {} },
    rate: rateWindow(keyCount, accountCount, limits, now),
  }
}

/** One more hit in the current minute, or the first of a new one. */
function countHit(ids: ReturnType<typeof sql>, at: string) {
  return sql`
    insert into provider.rate_windows as w (id, started_at, hits)
    select hit.id, ${at}::timestamptz, 1 from (${ids}) as hit (id)
    on conflict (id) do update set
      hits = case when w.started_at <= ${at}::timestamptz - interval '1 minute' then 1 else w.hits + 1 end,
      started_at = case when w.started_at <= ${at}::timestamptz - interval '1 minute' then ${at}::timestamptz else w.started_at end
    returning hits, started_at`
}
