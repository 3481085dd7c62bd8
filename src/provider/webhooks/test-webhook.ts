import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { eq, sql } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { postgresTime } from '../../platform/postgres/time.ts'
import { takeCalls } from '../accounts/rate-limit.ts'
import * as schema from '../domain/schema.ts'

const apiKeys = columnsOf(schema.apiKeys)
const deliveries = columnsOf(schema.deliveries)

/**
 * Tests per account, over all processes. At half, a person who tries URLs has to wait; at double, the form is a better
 * tool to flood a stranger.
 */
export const testsPerMinute = 10

/** `id` identifies the form and the webhook, so resending a form makes no second test. `url` has been checked. */
export type WantedTest = { id: string; keyId: string; url: string }
export type TestOutcome = 'there' | 'unknown key' | 'too many' | 'used'

/**
 * The body of a test (docs/provider.md). Its status TEST does not exist in the spec, so that no receiver takes it for
 * the end of a generation. Its request_id is the webhook's id.
 */
export function testBody(id: string): string {
  return JSON.stringify({
    request_id: id,
    status: 'TEST',
    message: 'A test from the developer console. It belongs to no request.',
  })
}

/**
 * Puts a test into the outbox. The dispatcher sends it like any webhook: signed, with a deadline, in its account's
 * share, and under the same rules for addresses. Faults of a sandbox key do not apply.
 */
export async function insertTest(db: Database, { id, keyId, url }: WantedTest): Promise<TestOutcome> {
  const now = postgresTime()
  const window = sql`select 'tests:' || account_id, 1 from key where not exists (select from known)`
  // A test shows its first answer and needs no second attempt.
  const rows = await db.execute<{ key: boolean; known: boolean | null; granted: boolean }>(sql`
    with key as (
      select ${list(apiKeys, 'id', 'account_id')} from provider.api_keys where ${apiKeys.id} = ${keyId}::uuid
        and ${apiKeys.revoked_at} is null
    ), known as (
      select ${deliveries.url} = ${url} and ${deliveries.api_key_id} = ${keyId}::uuid as is_same
        from provider.deliveries where ${deliveries.id} = ${id}::uuid
    ), taken as (${takeCalls(window, testsPerMinute, now)}
    ), written as (
      insert into provider.deliveries
        (${list(deliveries, 'id', 'account_id', 'api_key_id', 'url', 'host', 'body', 'state')},
        ${list(deliveries, 'max_attempts', 'due_at', 'created_at')})
      select ${id}::uuid, key.account_id, key.id, ${url}, ${new URL(url).host}, ${testBody(id)}, 'pending',
        1,
        ${now}, ${now}
      from key cross join taken where taken.granted > 0
      on conflict do nothing
    )
    select exists (select from key) as key, (select is_same from known) as known,
      exists (select from taken where granted > 0) as granted`)
  const { key, known, granted } = one(rows, `writing the test ${id}`)
  if (known === false) return 'used'
  if (known === true || granted) return 'there'
  return key ? 'too many' : 'unknown key'
}

/** The URL of an account's latest webhook. */
export async function lastWebhookUrl(db: Database, account: string): Promise<string | undefined> {
  const { id, account_id, url, created_at } = schema.deliveries
  const [last] = await db
    .select({ url })
    .from(schema.deliveries)
    .where(eq(account_id, account))
    .orderBy(sql`${created_at} desc nulls last, ${id} desc nulls last`)
    .limit(1)
  return last?.url
}
