import { columnsOf, list } from '../../runtime/postgres/columns.ts'
import { sql } from '../../runtime/postgres/drizzle.ts'
import { answered } from '../../runtime/postgres/errors.ts'
import type { Database } from '../../runtime/postgres/postgres.ts'
import type { RowOf } from '../../runtime/postgres/rows.ts'
import * as schema from '../domain/schema.ts'
import type { Caller } from './identify.ts'
import type { Scope } from './keys.ts'

const a = columnsOf(schema.accounts, 'a')
const k = columnsOf(schema.apiKeys, 'k')
const m = columnsOf(schema.modelActivations, 'm')

/** A key that may submit. */
export type RunnableKey = RowOf<typeof schema.apiKeys, 'id' | 'name' | 'environment'> & {
  account: string
  /** The last four characters of the API key. */
  hint: string
  /** What its account can spend. */
  available: string
}

/** Sandbox keys first, which charge nothing; the newest of each. */
export async function listRunnableKeys(db: Database, limit: number): Promise<RunnableKey[]> {
  return answered(
    await db.execute<RunnableKey>(sql`
    select ${list(k, 'id', 'name', 'environment')}, ${k.account_id} as account, ${k.key_hint} as hint, ${a.available}
    from provider.api_keys k join provider.accounts a on ${a.id} = ${k.account_id}
    where ${k.revoked_at} is null and 'generate' = any (${k.scopes})
    order by ${k.environment} = 'live', ${k.created_at} desc, ${k.id} desc limit ${limit}::int`),
    'listing keys that may submit',
  )
}

type CallerRow = RowOf<typeof schema.apiKeys, 'account_id' | 'environment' | 'faults'> & {
  scopes: Scope[]
  activations: Record<string, boolean> | null
}

/** Who calls with this key, for whoever may use it without holding it. Undefined when it is unknown or revoked. */
export async function callerOfKey(db: Database, keyId: string): Promise<Caller | undefined> {
  const [row] = answered(
    await db.execute<CallerRow>(sql`
    select ${list(k, 'account_id', 'environment', 'scopes', 'faults')},
      (select jsonb_object_agg(${m.slug}, ${m.enabled}) from provider.model_activations m where ${m.environment} = ${k.environment}) as activations
    from provider.api_keys k where ${k.id} = ${keyId} and ${k.revoked_at} is null`),
    'finding the caller of a key',
  )
  if (row === undefined) return undefined
  const { account_id: accountId, environment, scopes, faults, activations } = row
  return { keyId, accountId, environment, scopes, faults, activations: activations ?? {} }
}
