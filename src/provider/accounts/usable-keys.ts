import { and, desc, eq, isNull, sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { accounts, apiKeys } from '../domain/schema.ts'
import { listedRows } from './keys.ts'

/**
 * A key to choose in a form. `hint` is the last four characters of the API key, `available` what its account can spend.
 */
export type UsableKey = Awaited<ReturnType<typeof listUsableKeys>>[number]

/** Lists keys that may submit and are not revoked: the wanted one first, then the newest. */
export async function listUsableKeys(db: Database, wanted: string | undefined) {
  const { id, name, environment, account_id, key_hint, created_at, revoked_at, scopes } = apiKeys
  return db
    .select({ id, name, environment, account: account_id, hint: key_hint, available: accounts.available })
    .from(apiKeys)
    .innerJoin(accounts, eq(accounts.id, account_id))
    .where(and(isNull(revoked_at), sql`'generate' = any (${scopes})`))
    .orderBy(sql`${id} = ${wanted ?? null}::uuid desc nulls last`, desc(created_at), desc(id))
    .limit(listedRows)
}
