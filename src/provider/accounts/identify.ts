import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { NoAnswerError } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { executePrepared } from '../../platform/postgres/prepared.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import type { Faults } from '../domain/faults.ts'
import type { apiKeys, Environment, Scope } from '../domain/schema.ts'
import { sha256 } from '../domain/secret-box.ts'
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
  const wanted = Map.groupBy(hashes, (hash) => hash)
  const found = await executePrepared<Row>(
    db,
    statement(
      [...wanted.keys()],
      [...wanted.values()].map(({ length }) => length),
      limits,
      now,
    ),
  )
  const rows = new Map(found.map((row) => [row.key_hash, row]))
  // The calls that were granted together are assigned one by one.
  const nextOfKey = createTurns()
  const nextOfAccount = createTurns()
  return hashes.map((hash) => {
    const row = rows.get(hash)
    if (row === undefined) throw new NoAnswerError('identifying a caller')
    if (row.key_id === null) return null
    const ofKey = windowAfter(row.of_key, nextOfKey(hash), limits.perKey)
    if (ofKey.exceeded || row.of_account === null) return { caller: callerOf(row.key_id, row), rate: ofKey }
    const ofAccount = windowAfter(row.of_account, nextOfAccount(row.account_id), limits.perAccount)
    return { caller: callerOf(row.key_id, row), rate: narrower(ofKey, ofAccount) }
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

function statement(hashes: readonly string[], times: readonly number[], limits: RateLimits, now: SQL): SQL {
  return sql`
    with wanted as (
      select a.hash, decode(a.hash, 'hex') as key_hash, a.times
      from unnest(${sql.param([...hashes])}::text[], ${sql.param([...times])}::int[]) as a (hash, times)
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
