import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import * as schema from '../domain/schema.ts'
import type { Scope } from '../domain/schema.ts'
import type { Caller } from './identify.ts'

const a = columnsOf(schema.accounts, 'a')
const k = columnsOf(schema.apiKeys, 'k')
const m = columnsOf(schema.modelActivations, 'm')

/** A key that may submit. */
export type RunnableKey = RowOf<typeof schema.apiKeys, 'id' | 'name' | 'environment'> & {
  account: string
  /** The last four characters of the API key. */
  hint: string
  /** The credits that its account can spend. */
  available: string
}

/**
 * Lists the newest `limit` keys of each environment, and the wanted key regardless of its age. Sandbox keys come first,
 * because they charge nothing.
 */
export async function listRunnableKeys(
  db: Database,
  limit: number,
  wanted?: string,
): Promise<{ keys: RunnableKey[]; isCut: boolean }> {
  const rows = await db.execute<RunnableKey & { place: number }>(sql`
    select * from (
      select ${list(k, 'id', 'name', 'environment', 'created_at')}, ${k.account_id} as account, ${k.key_hint} as hint,
        ${a.available},
        row_number() over (partition by ${k.environment} order by ${k.created_at} desc, ${k.id} desc)::int as place
      from provider.api_keys k join provider.accounts a on ${a.id} = ${k.account_id}
      where ${k.revoked_at} is null and 'generate' = any (${k.scopes})
    ) runnable
    where place <= ${limit + 1}::int or id = ${wanted ?? null}::uuid
    order by environment = 'live', created_at desc, id desc`)
  return {
    keys: rows.filter(({ id, place }) => place <= limit || id === wanted),
    isCut: rows.some(({ place }) => place > limit),
  }
}

type CallerRow = RowOf<typeof schema.apiKeys, 'account_id' | 'environment' | 'faults'> & {
  scopes: Scope[]
  activations: Record<string, boolean> | null
}

/**
 * Returns the caller of a key, for pages that know a key by its id only. Undefined if the key is unknown or revoked.
 */
export async function callerOfKey(db: Database, keyId: string): Promise<Caller | undefined> {
  const [row] = await db.execute<CallerRow>(sql`
    select ${list(k, 'account_id', 'environment', 'scopes', 'faults')},
      (select jsonb_object_agg(${m.slug}, ${m.enabled}) from provider.model_activations m
        where ${m.environment} = ${k.environment}) as activations
    from provider.api_keys k where ${k.id} = ${keyId} and ${k.revoked_at} is null`)
  if (row === undefined) return undefined
  const { account_id: accountId, environment, scopes, faults, activations } = row
  return { keyId, accountId, environment, scopes, faults, activations: activations ?? {} }
}
