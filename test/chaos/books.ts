import type postgres from 'postgres'
import { expect } from 'vitest'
import { eventually } from '../support/eventually.ts'
import type { Outgoing } from './sender.ts'

/** What was answered 200 is there, byte for byte, whatever else is. */
export async function expectKept(sql: postgres.Sql, acknowledged: readonly Outgoing[]): Promise<void> {
  const rows = await sql<{ webhook_id: string; body: Buffer }[]>`select webhook_id, body from mediadock.deliveries`
  const kept = new Map(rows.map((row) => [row.webhook_id, row.body]))
  const missing = acknowledged.filter(({ webhookId, body }) => !kept.get(webhookId)?.equals(body))
  expect(missing.map(({ webhookId }) => webhookId)).toEqual([])
}

/** Every delivery was accepted once and had its effect once. */
export async function expectLandedOnce(sql: postgres.Sql, deliveries: readonly Outgoing[]): Promise<void> {
  const wanted = deliveries.map(({ requestId }) => requestId).sort()
  const stored = await sql<{ request_id: string }[]>`select request_id from mediadock.deliveries order by request_id::text`
  expect(stored.map((row) => row.request_id)).toEqual(wanted)
  const results = await sql<{ request_id: string }[]>`
    select request_id from mediadock.results where status in ('COMPLETED', 'FAILED') and media_complete order by request_id::text`
  expect(results.map((row) => row.request_id)).toEqual(wanted)
  const landings = await sql<{ delivery_id: string }[]>`select delivery_id from mediadock.attempts where outcome = 'landed'`
  expect(landings).toHaveLength(wanted.length)
  expect(new Set(landings.map((row) => row.delivery_id)).size).toBe(wanted.length)
}

/**
 * Waits until all is landed. What was claimed when a process or Postgres went
 * away is leased for 45 s: the lease is not waited for, its end is brought
 * forward. A claim that still lives loses nothing by it, since `claims` fences.
 */
export async function untilInboxIsEmpty(sql: postgres.Sql, withinMs = 60_000): Promise<void> {
  await eventually(async () => {
    const [row] = await sql`select count(*)::int as waiting, count(*) filter (where due_at <= now())::int as due from mediadock.inbox`
    if (row?.['waiting'] > 0 && row?.['due'] === 0) await sql`update mediadock.inbox set due_at = now() where claims > 0`
    return row?.['waiting'] === 0
  }, withinMs)
}
