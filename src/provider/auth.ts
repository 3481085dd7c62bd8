import type { IncomingHttpHeaders } from 'node:http'
import { sql, type SQL } from 'drizzle-orm'
import { HttpError } from '../runtime/http.ts'
import type { Database } from '../runtime/postgres.ts'
import { executePrepared } from '../runtime/prepared.ts'
import type { Faults } from './faults.ts'
import type { Scope } from './keys.ts'
import { createNaturalBatch } from './natural-batch.ts'
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

/** Null for a key that is unknown or revoked. */
export type Identify = (apiKey: string) => Promise<Identified | null>

const maxBatch = 500
const batchesUnderWay = 2

/** Identifies the callers of this process, the ones that ask at the same time together. */
export function createIdentify({ db, limits, clock }: { db: Database; limits: RateLimits; clock: () => Date }): Identify {
  return createNaturalBatch({ answerAll: (keys) => identifyAll(db, keys, limits, clock()), maxBatch, parallel: batchesUnderWay })
}

type Row = {
  key_hash: string
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
 * Finds the callers of API keys and counts their requests, in one statement:
 * revocation takes effect at once, and all processes share the same counts.
 * A request that its key's window refuses is not counted against the account.
 */
export async function identifyAll(db: Database, apiKeys: readonly string[], limits: RateLimits, now: Date): Promise<(Identified | null)[]> {
  const hashes = apiKeys.map((apiKey) => sha256(apiKey).toString('hex'))
  const asked = Map.groupBy(hashes, (hash) => hash)
  const rows = await executePrepared<Row>(db, statement([...asked.keys()], [...asked.values()].map(({ length }) => length), limits, now.toISOString()))
  const accounts = new Map<string, { hits: number; startedAt: Date }>()
  const keys = new Map<string, { row: Row; hits: number }>()
  // The counts came back as they are after all of these requests: each is given its own number again.
  for (const row of rows) {
    const times = asked.get(row.key_hash)?.length ?? 0
    const hits = row.key_hits - times
    keys.set(row.key_hash, { row, hits })
    if (row.account_hits === null || row.account_started === null) continue
    const account = accounts.get(row.account_id) ?? { hits: row.account_hits, startedAt: new Date(row.account_started) }
    account.hits -= Math.min(Math.max(limits.perKey - hits, 0), times)
    accounts.set(row.account_id, account)
  }
  return hashes.map((hash) => {
    const key = keys.get(hash)
    if (key === undefined) return null
    key.hits += 1
    const account = key.hits <= limits.perKey ? accounts.get(key.row.account_id) : undefined
    if (account) account.hits += 1
    const keyCount = { hits: key.hits, startedAt: new Date(key.row.key_started) }
    return { caller: callerOf(key.row), rate: rateWindow(keyCount, account, limits, now) }
  })
}

function callerOf({ key_id: keyId, account_id: accountId, environment, scopes, faults, activations }: Row): Caller {
  return { keyId, accountId, environment, scopes, faults, activations: activations ?? {} }
}

function statement(hashes: readonly string[], times: readonly number[], limits: RateLimits, at: string): SQL {
  return sql`
    with asked as (
      select decode(a.hash, 'hex') as key_hash, a.times from unnest(${sql.param([...hashes])}::text[], ${sql.param([...times])}::int[]) as a (hash, times)
    ), known as (
      select k.id, k.account_id, k.environment, k.scopes, k.faults, k.key_hash, asked.times
      from asked join provider.api_keys k on k.key_hash = asked.key_hash and k.revoked_at is null
    ), key_window as (${countHits(sql`select 'key:' || id, times from known`, at)}
    ), account_window as (${countHits(
      sql`select 'account:' || account_id, sum(allowed)::int from (
        select known.account_id, greatest(0, least(known.times, ${limits.perKey}::int - (w.hits - known.times))) as allowed
        from known join key_window w on w.id = 'key:' || known.id
      ) counted where allowed > 0 group by account_id`,
      at,
    )})
    select encode(k.key_hash, 'hex') as key_hash, k.id as key_id, k.account_id, k.environment, k.scopes, k.faults,
      (select jsonb_object_agg(slug, enabled) from provider.model_activations m where m.environment = k.environment) as activations,
      w.hits as key_hits, w.started_at as key_started, a.hits as account_hits, a.started_at as account_started
    from known k join key_window w on w.id = 'key:' || k.id left join account_window a on a.id = 'account:' || k.account_id`
}

/** So many more hits in the current minute, or the first of a new one. In order, so that two statements never wait for each other in a circle. */
function countHits(ids: SQL, at: string): SQL {
  const over = sql`w.started_at <= ${at}::timestamptz - interval '1 minute'`
  return sql`
    insert into provider.rate_windows as w (id, started_at, hits)
    select hit.id, ${at}::timestamptz, hit.times from (${ids}) as hit (id, times) order by hit.id
    on conflict (id) do update set
      hits = case when ${over} then excluded.hits else w.hits + excluded.hits end,
      started_at = case when ${over} then excluded.started_at else w.started_at end
    returning id, hits, started_at`
}
