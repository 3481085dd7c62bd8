import type { IncomingMessage } from 'node:http'
import { HttpError } from '../../platform/http/http.ts'
import { createNaturalBatch } from '../../platform/natural-batch.ts'
import { type SQL, sql } from '../../platform/postgres/drizzle.ts'
import { NoAnswerError } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { executePrepared } from '../../platform/postgres/prepared.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import type { Faults } from '../domain/faults.ts'
import type { apiKeys, Environment, Scope } from '../domain/schema.ts'
import { sha256 } from '../domain/secret-box.ts'
import { isKeyShaped } from './keys.ts'
import { narrower, type RateLimits, type RateWindow, takeCalls, type Taken, windowAfter } from './rate-limit.ts'

/** The caller of a request with its rights and limits. */
export type Caller = {
  keyId: string
  accountId: string
  environment: Environment
  scopes: Scope[]
  faults: Faults | null
  /** Models that an operator enabled or disabled in this environment. */
  activations: Record<string, boolean>
}

export type Identified = { caller: Caller; rate: RateWindow }

type Row = CallerRow & {
  /** Hexadecimal. */
  key_hash: string
  /** Null for an unknown or revoked key. Every key gets a row. */
  key_id: string | null
  of_key: Taken
  /** Null if no request counted against the account. */
  of_account: Taken | null
}

const activationsOfKey = sql`(select jsonb_object_agg(m.slug, m.enabled) from provider.model_activations m
  where m.environment = k.environment)`

/**
 * Identifies the callers of API keys and counts their requests, in one statement. Revocation takes effect at once, and
 * all processes share the counts. A request that the key's window refuses does not count against the account. A request
 * that the account's window refuses counts against the key.
 */
export async function identifyAll(
  db: Database,
  apiKeys: readonly string[],
  limits: RateLimits,
  now: SQL,
): Promise<(Identified | null)[]> {
  const hashes = apiKeys.map((apiKey) => sha256(apiKey).toString('hex'))
  const found = await executePrepared<Row>(db, statement(hashes, limits, now))
  const rows = new Map(found.map((row) => [row.key_hash, row]))
  // The calls that were granted together are assigned one by one.
  const nextOfKey = createTurns()
  const nextOfAccount = createTurns()
  return hashes.map((hash) => {
    const row = rows.get(hash)
    if (row === undefined) throw new NoAnswerError('identifying a caller')
    if (row.key_id === null) return null
    const caller = callerOf(row.key_id, row)
    const ofKey = windowAfter(row.of_key, nextOfKey(hash), limits.perKey)
    if (ofKey.exceeded || row.of_account === null) return { caller, rate: ofKey }
    const ofAccount = windowAfter(row.of_account, nextOfAccount(row.account_id), limits.perAccount)
    return { caller, rate: narrower(ofKey, ofAccount) }
  })
}

function createTurns(): (id: string) => number {
  const turns = new Map<string, number>()
  return (id) => {
    const turn = (turns.get(id) ?? 0) + 1
    turns.set(id, turn)
    return turn
  }
}

type CallerRow = RowOf<typeof apiKeys, 'account_id' | 'environment' | 'faults'> & {
  scopes: Scope[]
  activations: Record<string, boolean> | null
}

function callerOf(
  keyId: string,
  { account_id: accountId, environment, scopes, faults, activations }: CallerRow,
): Caller {
  return { keyId, accountId, environment, scopes, faults, activations: activations ?? {} }
}

function statement(hashes: readonly string[], limits: RateLimits, now: SQL): SQL {
  return sql`
    with wanted as (
      select hash, decode(hash, 'hex') as key_hash, count(*)::int as times
      from unnest(${sql.param([...hashes])}::text[]) as hash group by hash
    ), known as (
      select k.id, k.account_id, k.environment, k.scopes, k.faults, wanted.hash, wanted.times
      from wanted join provider.api_keys k on k.key_hash = wanted.key_hash and k.revoked_at is null
    ), key_window as (${takeCalls(sql`select 'key:' || id, times from known`, limits.perKey, now)}
    ), account_window as (${takeCalls(
      sql`select 'account:' || known.account_id, sum(w.granted)::int
        from known join key_window w on w.id = 'key:' || known.id where w.granted > 0 group by known.account_id`,
      limits.perAccount,
      now,
    )})
    select wanted.hash as key_hash, k.id as key_id, k.account_id, k.environment, k.scopes, k.faults,
      ${activationsOfKey} as activations, w.taken as of_key, a.taken as of_account
    from wanted left join known k on k.hash = wanted.hash left join key_window w on w.id = 'key:' || k.id
      left join account_window a on a.id = 'account:' || k.account_id`
}

/** Returns the caller of a key, for pages that have only its id. Undefined if the key is unknown or revoked. */
export async function callerOfKey(db: Database, keyId: string): Promise<Caller | undefined> {
  const [row] = await db.execute<CallerRow>(sql`
    select k.account_id, k.environment, k.scopes, k.faults, ${activationsOfKey} as activations
    from provider.api_keys k where k.id = ${keyId} and k.revoked_at is null`)
  return row && callerOf(keyId, row)
}

const authorizationPattern = /^(?:Bearer|Key) +(\S+) *$/i

/**
 * Reads the API key of a request in any of the spec's three forms (Authentication 1). Returns undefined if it is
 * missing, if two credentials disagree, or if its shape is wrong. A wrong shape never reaches Postgres.
 */
export function readApiKey({ headers, headersDistinct }: IncomingMessage): string | undefined {
  const [authorization, ...others] = new Set(headersDistinct['authorization'])
  if (others.length > 0) return undefined
  const fromAuthorization =
    authorization === undefined ? undefined : (authorizationPattern.exec(authorization)?.[1] ?? '')
  const custom = headers['x-api-key']
  const fromCustom = custom === undefined ? undefined : String(custom).trim()
  if (fromAuthorization !== undefined && fromCustom !== undefined && fromAuthorization !== fromCustom) return undefined
  const key = fromAuthorization ?? fromCustom
  return key !== undefined && key.length <= 200 && isKeyShaped(key) ? key : undefined
}

/** Resolves to null for an unknown or revoked key. */
export type Identify = (apiKey: string) => Promise<Identified | null>

type IdentifyDeps = { db: Database; limits: RateLimits; clock: () => Date; time: SharedTime }
type Refusal = { identified: Identified; untilMs: number }

/**
 * Identifies the callers of this process. Concurrent calls share a statement. Keys that this process has not yet found
 * valid wait in a separate queue, one statement at a time, so that guesses do not delay callers with a known key.
 */
export function createIdentify({ db, limits, clock, time }: IdentifyDeps): Identify {
  const answerAll = (keys: readonly string[]) => identifyAll(db, keys, limits, time())
  const known = createNaturalBatch({ answerAll })
  const strangers = createNaturalBatch({ answerAll, parallel: 1 })
  const seen = new Map<string, Refusal | undefined>()
  let strangersWaiting = 0

  const remember = (hash: string, identified: Identified | null) => {
    if (identified === null) {
      seen.delete(hash)
      return null
    }
    const [oldest] = seen.keys()
    // The process remembers at most 10,000 valid keys, at about 100 bytes each.
    if (seen.size >= 10_000 && oldest !== undefined && !seen.has(hash)) seen.delete(oldest)
    // A key over its limit is refused from memory for a second: each process needs about one statement per second.
    seen.set(hash, identified.rate.exceeded ? { identified, untilMs: clock().getTime() + 1000 } : undefined)
    return identified
  }
  return async (apiKey) => {
    const hash = sha256(apiKey).toString('base64')
    if (seen.has(hash)) {
      const refusal = seen.get(hash)
      if (refusal && clock().getTime() < refusal.untilMs) return refusal.identified
      return remember(hash, await known(apiKey))
    }
    // Limits the callers with unseen keys that wait, so that guesses cannot fill the memory.
    if (strangersWaiting >= 500) {
      const message = 'too many unknown API keys are being looked up at this moment'
      throw new HttpError(503, 'unavailable', message, { headers: { 'Retry-After': '1' } })
    }
    strangersWaiting += 1
    try {
      return remember(hash, await strangers(apiKey))
    } finally {
      strangersWaiting -= 1
    }
  }
}
