import { randomBytes, randomUUID } from 'node:crypto'
import { alias, and, desc, eq, isNull, sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { Faults } from '../domain/faults.ts'
import { accounts, apiKeys, type Environment, scopes, type Scope } from '../domain/schema.ts'
import { seal, sha256, unseal } from '../domain/secret-box.ts'
import { grant, openAccount } from './ledger.ts'

/** The spec's prefixes (Authentication 2). */
const prefixes = { live: 'service_live_', sandbox: 'service_test_' } as const

export function isKeyShaped(text: string): boolean {
  return Object.values(prefixes).some((prefix) => text.startsWith(prefix))
}

export type NewKey = {
  /** Set by a form, so that resending it creates no second key. Otherwise random. */
  id?: string | undefined
  account: string
  name: string
  environment: Environment
  scopes?: readonly Scope[] | undefined
  /** Set for demo keys only. Otherwise random. */
  apiKey?: string
  signingSecret?: string
}

/** A new key. Its API key and signing secret are never shown again (spec, Authentication 3 and 7). */
export type CreatedKey = NonNullable<Awaited<ReturnType<typeof insertKey>>>

/** Creates a key, and its account if there is none yet. Returns undefined if the API key or the id exists. */
export async function insertKey({ db, secretKey }: { db: Database; secretKey: Buffer }, wanted: NewKey) {
  const { account, name, environment } = wanted
  const own = { id: wanted.id ?? randomUUID(), account, name, environment, scopes: [...(wanted.scopes ?? scopes)] }
  const api_key = wanted.apiKey ?? prefixes[environment] + randomBytes(32).toString('base64url')
  const signing_secret = wanted.signingSecret ?? `whsec_${randomBytes(32).toString('base64')}`
  await openAccount(db, account)
  const rows = await db
    .insert(apiKeys)
    .values({
      ...own,
      account_id: account,
      key_hash: sha256(api_key),
      key_hint: api_key.slice(-4),
      signing_secret: seal(signing_secret, secretKey),
      created_at: sql`now()`,
    })
    .onConflictDoNothing()
    .returning({ id: apiKeys.id })
  return rows.length > 0 ? { ...own, api_key, signing_secret } : undefined
}

/** A key that the first start on a laptop creates and later starts reuse. */
export type DemoKey = Required<Omit<NewKey, 'id' | 'scopes'>> & { credits: number }

/** Creates missing keys. The account of a live key gets its credits once. */
export async function importDemoKeys(
  deps: { db: Database; secretKey: Buffer },
  demoKeys: readonly DemoKey[],
): Promise<void> {
  for (const { credits, ...key } of demoKeys) {
    await insertKey(deps, key)
    if (key.environment !== 'live' || credits <= 0) continue
    const reference = `demo:${key.account}`
    await grant(deps.db, { accountId: key.account, credits: String(credits), reference })
  }
}

const { id, name, environment, faults, created_at, revoked_at } = apiKeys
const listed = {
  id,
  account: apiKeys.account_id,
  name,
  environment,
  scopes: apiKeys.scopes,
  /** The last four characters of the API key. */
  hint: apiKeys.key_hint,
  faults,
  created_at,
  revoked_at,
}

export type KeyListing = Awaited<ReturnType<typeof listKeys>>[number]

/**
 * The rows of a list without a next page: the newest accounts, and the newest keys of a form. More could not be found
 * by scrolling. Older ones are found by their requests.
 */
export const listedRows = 500

type KeyPage = { account?: string | undefined; before?: string | undefined; limit?: number }

/** Lists the keys of one or all accounts, newest first. `before` is the last key of the previous page. */
export async function listKeys(db: Database, { account, before, limit = Number.MAX_SAFE_INTEGER }: KeyPage = {}) {
  const last = alias(apiKeys, 'last')
  const place = sql`select ${last.created_at}, ${last.id} from ${apiKeys} last where ${last.id} = ${before}`
  const isOlder = before === undefined ? undefined : sql`(${created_at}, ${id}) < (${place})`
  return db
    .select(listed)
    .from(apiKeys)
    .where(and(account === undefined ? undefined : eq(apiKeys.account_id, account), isOlder))
    .orderBy(desc(created_at), desc(id))
    .limit(limit)
}

export async function readKey(db: Database, keyId: string): Promise<KeyListing | undefined> {
  const [key] = await db.select(listed).from(apiKeys).where(eq(id, keyId))
  return key
}

/** A key to choose in a form. `available` is what its account can spend. */
export type UsableKey = Awaited<ReturnType<typeof listUsableKeys>>[number]

/** Lists keys that may submit and are not revoked: the wanted one first, then the newest. */
export async function listUsableKeys(db: Database, wanted: string | undefined) {
  return db
    .select({ id, name, environment, account: listed.account, hint: listed.hint, available: accounts.available })
    .from(apiKeys)
    .innerJoin(accounts, eq(accounts.id, apiKeys.account_id))
    .where(and(isNull(revoked_at), sql`'generate' = any (${apiKeys.scopes})`))
    .orderBy(sql`${id} = ${wanted ?? null}::uuid desc nulls last`, desc(created_at), desc(id))
    .limit(listedRows)
}

/** Revokes a key from the next request on (spec, Authentication 3). Returns false if the key is unknown. */
export async function revokeKey(db: Database, keyId: string): Promise<boolean> {
  const revoked = { revoked_at: sql`coalesce(${revoked_at}, now())` }
  return (await db.update(apiKeys).set(revoked).where(eq(id, keyId)).returning({ id })).length > 0
}

/** Sets or, with null, clears the faults of a sandbox key. */
export async function updateFaults(
  db: Database,
  keyId: string,
  faults: Faults | null,
): Promise<'done' | 'unknown' | 'live'> {
  const isSandbox = and(eq(id, keyId), eq(environment, 'sandbox'))
  const changed = await db.update(apiKeys).set({ faults }).where(isSandbox).returning({ id })
  if (changed.length > 0) return 'done'
  return (await readKey(db, keyId)) === undefined ? 'unknown' : 'live'
}

/** A key's signing secret is missing, or PROVIDER_SECRET_KEY cannot decrypt it. */
export class UnreadableSecretError extends Error {
  override name = 'UnreadableSecretError'
  code = 'unreadable_secret' as const
}

/**
 * Reads the signing secret, also of a revoked key: the webhooks of its requests are still signed with it (decisions,
 * key revoked).
 */
export async function readSigningSecret(db: Database, keyId: string, secretKey: Buffer): Promise<string> {
  const [row] = await db.select({ box: apiKeys.signing_secret }).from(apiKeys).where(eq(id, keyId))
  if (row === undefined) throw new UnreadableSecretError(`there is no API key ${keyId}`)
  try {
    return unseal(row.box, secretKey)
  } catch (error) {
    throw new UnreadableSecretError(`the secret of the API key ${keyId} cannot be decrypted`, { cause: error })
  }
}
