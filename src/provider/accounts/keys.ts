import { randomBytes, randomUUID } from 'node:crypto'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import type { Faults } from '../domain/faults.ts'
import type { Environment } from '../domain/schema.ts'
import * as schema from '../domain/schema.ts'
import { seal, sha256, unseal } from '../domain/secret-box.ts'
import { openAccount } from './ledger.ts'

const apiKeys = columnsOf(schema.apiKeys)
const k = columnsOf(schema.apiKeys, 'k')

export const scopes = ['generate', 'read'] as const
export type Scope = (typeof scopes)[number]

/** The spec's prefixes (Authentication 2). */
const prefixes = { live: 'service_live_', sandbox: 'service_test_' } as const

export function isKeyShaped(text: string): boolean {
  return Object.values(prefixes).some((prefix) => text.startsWith(prefix))
}

export type NewKey = {
  /** Given by who must not make it twice; otherwise random. */
  id?: string | undefined
  account: string
  name: string
  environment: Environment
  scopes?: readonly Scope[]
  /** Given for demo keys only; otherwise random. */
  apiKey?: string
  signingSecret?: string
}

/** A key as it is shown at its creation: the only time that its last two members are (spec, Authentication 3 and 7). */
export type CreatedKey = {
  id: string
  account: string
  name: string
  environment: Environment
  scopes: Scope[]
  api_key: string
  signing_secret: string
}

/** Makes a key, and its account if that is new. Undefined when the very same API key, or its id, is known already. */
export async function insertKey(
  { db, secretKey }: { db: Database; secretKey: Buffer },
  wanted: NewKey,
): Promise<CreatedKey | undefined> {
  const key = {
    id: wanted.id ?? randomUUID(),
    account: wanted.account,
    name: wanted.name,
    environment: wanted.environment,
    scopes: [...(wanted.scopes ?? scopes)],
    api_key: wanted.apiKey ?? prefixes[wanted.environment] + randomBytes(32).toString('base64url'),
    signing_secret: wanted.signingSecret ?? `whsec_${randomBytes(32).toString('base64url')}`,
  }
  await openAccount(db, key.account)
  const rows = await db.execute(sql`
    insert into provider.api_keys
      (${list(apiKeys, 'id', 'account_id', 'name', 'environment', 'scopes', 'key_hash', 'key_hint', 'signing_secret', 'created_at')})
    values (${key.id}, ${key.account}, ${key.name}, ${key.environment}, ${sql.param(key.scopes)}::text[],
      ${sha256(key.api_key)}, ${key.api_key.slice(-4)}, ${seal(key.signing_secret, secretKey)}, now())
    on conflict do nothing
    returning id`)
  return rows.length > 0 ? key : undefined
}

export type KeyListing = RowOf<
  typeof schema.apiKeys,
  'id' | 'name' | 'environment' | 'faults' | 'created_at' | 'revoked_at'
> & {
  account: string
  scopes: Scope[]
  /** The last four characters of the API key. */
  hint: string
}

const listed = sql`${apiKeys.id}, ${apiKeys.account_id} as account, ${list(apiKeys, 'name', 'environment', 'scopes')}, ${apiKeys.key_hint} as hint,
  ${list(apiKeys, 'faults', 'created_at', 'revoked_at')}`

/** Of one account, or of all; `before` is the last key of the page before. */
export type KeyPage = { account?: string | undefined; before?: string | undefined; limit: number }

/** Newest first. */
export async function listKeys(db: Database, { account, before, limit }: KeyPage): Promise<KeyListing[]> {
  const rows = await db.execute<KeyListing>(sql`
    select ${listed} from provider.api_keys
    where (${account ?? null}::text is null or ${apiKeys.account_id} = ${account ?? null})
      and (${before ?? null}::uuid is null or (${apiKeys.created_at}, ${apiKeys.id}) < (
        select ${k.created_at}, ${k.id} from provider.api_keys k where ${k.id} = ${before ?? null}::uuid))
    order by ${apiKeys.created_at} desc, ${apiKeys.id} desc limit ${limit}::int`)
  return rows.map(withTimes)
}

export async function readKey(db: Database, id: string): Promise<KeyListing | undefined> {
  const rows = await db.execute<KeyListing>(
    sql`select ${listed} from provider.api_keys where ${apiKeys.id} = ${id}::uuid`,
  )
  return rows.map(withTimes)[0]
}

function withTimes(row: KeyListing): KeyListing {
  return { ...row, created_at: iso(row.created_at), revoked_at: row.revoked_at && iso(row.revoked_at) }
}

/** Takes effect at the next request (spec, Authentication 3). False when there is no such key. */
export async function revokeKey(db: Database, id: string): Promise<boolean> {
  const rows = await db.execute(sql`
    update provider.api_keys set ${apiKeys.revoked_at} = coalesce(${apiKeys.revoked_at}, now())
    where ${apiKeys.id} = ${id} returning ${apiKeys.id}`)
  return rows.length > 0
}

/** Sets or, with null, clears the faults of a sandbox key. */
export async function updateFaults(
  db: Database,
  id: string,
  faults: Faults | null,
): Promise<'done' | 'unknown' | 'live'> {
  const [row] = await db.execute<{ done: boolean }>(sql`
    with changed as (
      update provider.api_keys set ${apiKeys.faults} = ${faults === null ? null : JSON.stringify(faults)}::jsonb
      where ${apiKeys.id} = ${id} and ${apiKeys.environment} = 'sandbox' returning ${apiKeys.id}
    )
    select exists (select from changed) as done from provider.api_keys where id = ${id}`)
  if (row === undefined) return 'unknown'
  return row.done ? 'done' : 'live'
}

/** A key's signing secret is not there, or cannot be decrypted with PROVIDER_SECRET_KEY. */
export class UnreadableSecretError extends Error {
  override name = 'UnreadableSecretError'
  code = 'unreadable_secret' as const
}

/** Works for revoked keys too: what they started is still signed with their secret (decisions, key revoked). */
export async function readSigningSecret(db: Database, keyId: string, secretKey: Buffer): Promise<string> {
  const rows = await db.execute<{
    box: RowOf<typeof schema.apiKeys, 'signing_secret'>['signing_secret']
  }>(sql`select ${apiKeys.signing_secret} as box
    from provider.api_keys where ${apiKeys.id} = ${keyId}`)
  const [row] = rows
  if (row === undefined) throw new UnreadableSecretError(`there is no API key ${keyId}`)
  try {
    return unseal(row.box, secretKey)
  } catch (error) {
    throw new UnreadableSecretError(`the secret of the API key ${keyId} cannot be decrypted`, { cause: error })
  }
}

/** Postgres's way of writing an instant, as ISO 8601. */
export function iso(instant: string): string {
  return new Date(instant).toISOString()
}
