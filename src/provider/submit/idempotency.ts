import { HttpError } from '../../platform/http/http.ts'
import { and, eq, lte, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { later } from '../../platform/postgres/time.ts'
import type { SubmitBody } from '../../wire/schemas.ts'
import type { Environment } from '../domain/schema.ts'
import * as schema from '../domain/schema.ts'
import { sha256 } from '../domain/secret-box.ts'

const uuidV4 = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/i

/** Reads the Idempotency-Key of a submit, in lower case. Anything but a UUID v4 is 400. */
export function readIdempotencyKey(header: string | undefined): string | undefined {
  if (header === undefined) return undefined
  if (!uuidV4.test(header)) throw new HttpError(400, 'idempotency_key_invalid', 'the Idempotency-Key must be a UUID v4')
  return header.toLowerCase()
}

/** A digest that is equal for equal submits (decisions, scope of an Idempotency-Key). */
export function fingerprintOf(model: string, { input, webhook_url }: SubmitBody): Buffer {
  return sha256(canonicalJson([model, input, webhook_url ?? null]))
}

/** Writes JSON with sorted members, so that their order does not matter. body.ts bounds the depth. */
function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  const members = Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1))
  return `{${members.map(([key, member]) => `${JSON.stringify(key)}:${canonicalJson(member)}`).join(',')}}`
}

export type KeyScope = { accountId: string; environment: Environment; key: string }

/** An accepted submit, with the content of its answer. `submitted_position` is null if it was not recorded. */
export type Remembered = RowOf<typeof schema.idempotencyKeys, 'request_id' | 'submitted_position'> &
  RowOf<typeof schema.requests, 'cost'> & { same: boolean; expired: boolean; queued: boolean }

/** Reads the accepted submit of this key, if it exists. */
export async function recall(
  db: Database,
  { accountId, environment, key }: KeyScope,
  fingerprint: Buffer,
  now: SQL,
): Promise<Remembered | undefined> {
  const [row] = await db.execute<Remembered>(sql`
    select k.request_id, k.fingerprint = ${fingerprint} as same, k.created_at <= ${cutoff(now)} as expired,
      r.cost, r.turn is not null as queued, k.submitted_position
    from provider.idempotency_keys k join provider.requests r on r.id = k.request_id
    where k.account_id = ${accountId} and k.environment = ${environment} and k.key = ${key}`)
  return row
}

/** Records the position of a new request, which is known only after it is queued. */
export async function rememberPosition(db: Database, scope: KeyScope, position: number): Promise<void> {
  await db.update(schema.idempotencyKeys).set({ submitted_position: position }).where(isOf(scope))
}

/** Deletes an expired key, so that it can be used again. */
export async function forgetExpiredKey(db: Database, scope: KeyScope, now: SQL): Promise<void> {
  const isExpired = lte(schema.idempotencyKeys.created_at, cutoff(now))
  await db.delete(schema.idempotencyKeys).where(and(isOf(scope), isExpired))
}

function isOf({ accountId, environment, key }: KeyScope): SQL | undefined {
  const keys = schema.idempotencyKeys
  return and(eq(keys.account_id, accountId), eq(keys.environment, environment), eq(keys.key, key))
}

/** Deletes the oldest expired keys, at most `limit`. Returns their number. */
export async function pruneExpiredKeys(db: Database, limit: number, now: SQL): Promise<number> {
  const { created_at } = schema.idempotencyKeys
  const old = sql`
    select ctid from ${schema.idempotencyKeys} where ${created_at} <= ${cutoff(now)}
    order by ${created_at} limit ${limit}`
  const rows = await db
    .delete(schema.idempotencyKeys)
    .where(sql`ctid = any (array(${old}))`)
    .returning({ created_at })
  return rows.length
}

function cutoff(now: SQL): SQL {
  // After this time the same key counts as a new request (spec, Limits).
  return later(now, -24 * 3600)
}
