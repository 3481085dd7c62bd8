import { createHash } from 'node:crypto'
import type postgres from 'postgres'
import { expect } from 'vitest'
import { eventually } from '../support/eventually.ts'
import type { Outgoing } from './sender.ts'

/** Every delivery answered 200 is stored byte for byte. */
export async function expectKept(sql: postgres.Sql, acknowledged: readonly Outgoing[]): Promise<void> {
  const rows = await sql<{ webhook_id: string; hash: string }[]>`
    select webhook_id, encode(sha256(body), 'hex') as hash from mediadock.deliveries`
  const kept = new Map(rows.map((row) => [row.webhook_id, row.hash]))
  const missing = acknowledged.filter(({ webhookId, body }) => kept.get(webhookId) !== hashOf(body))
  expect(missing.map(({ webhookId }) => webhookId)).toEqual([])
}

/** Counts broken promises: deliveries that are damaged or never landed, and those stored or landed twice. */
export async function countBooks(
  sql: postgres.Sql,
  acknowledged: readonly { delivery: Outgoing }[],
): Promise<{ lost: number; doubled: number }> {
  const rows = await sql<{ webhook_id: string; hash: string; landed: boolean; stored: number; effects: number }[]>`
    with effects as (select request_id, count(*)::int as n from effects_seen group by request_id),
    stored as (select request_id, count(*)::int as n from mediadock.deliveries group by request_id)
    select d.webhook_id, encode(sha256(d.body), 'hex') as hash, r.status in ('COMPLETED', 'FAILED') as landed, stored.n as stored, coalesce(effects.n, 0) as effects
    from mediadock.deliveries d join stored using (request_id) left join mediadock.results r using (request_id) left join effects using (request_id)`
  const kept = new Map(rows.map((row) => [row.webhook_id, row]))
  const lost = acknowledged.filter(({ delivery: { webhookId, body } }) => {
    const row = kept.get(webhookId)
    return row?.hash !== hashOf(body) || !row.landed
  })
  return { lost: lost.length, doubled: rows.filter(({ stored, effects }) => stored > 1 || effects > 1).length }
}

/** Bodies are compared by hash, so that they need not be read. */
function hashOf(body: Buffer): string {
  return createHash('sha256').update(body).digest('hex')
}

/** Every delivery was accepted once and had its effect once. */
export async function expectLandedOnce(sql: postgres.Sql, deliveries: readonly Outgoing[]): Promise<void> {
  const wanted = deliveries.map(({ requestId }) => requestId).sort()
  const stored = await sql<
    { request_id: string }[]
  >`select request_id from mediadock.deliveries order by request_id::text`
  expect(stored.map((row) => row.request_id)).toEqual(wanted)
  const results = await sql<{ request_id: string }[]>`
    select request_id from mediadock.results where status in ('COMPLETED', 'FAILED') order by request_id::text`
  expect(results.map((row) => row.request_id)).toEqual(wanted)
  const effects = await sql<
    { request_id: string; n: number }[]
  >`select request_id, count(*)::int as n from effects_seen group by request_id`
  expect(effects).toHaveLength(wanted.length)
  expect(effects.filter(({ n }) => n > 1)).toEqual([])
}

/** From now on each landing is written down, also one that changes nothing; polls write other columns. */
export async function watchEffects(sql: postgres.Sql): Promise<void> {
  await sql.unsafe(`
    create table effects_seen (request_id uuid not null);
    create function note_effect() returns trigger language plpgsql as $$ begin insert into public.effects_seen values (new.request_id); return null; end $$;
    create trigger effects after insert or update of output on mediadock.requests for each row when (new.landed_at is not null) execute function note_effect()`)
}

/** Waits until everything has landed, without help. */
export async function untilAllLanded(sql: postgres.Sql, withinMs: number): Promise<void> {
  await eventually(async () => (await sql`select from mediadock.inbox limit 1`).length === 0, withinMs)
}

/**
 * Waits until all is landed. What was claimed when a process or Postgres went
 * away is leased for some seconds: the lease is not waited for, its end is brought
 * forward. A claim that still lives loses nothing by it, since `claims` fences.
 */
export async function untilInboxIsEmpty(sql: postgres.Sql, withinMs = 60_000): Promise<void> {
  await eventually(async () => {
    const [row] =
      await sql`select count(*)::int as waiting, count(*) filter (where due_at <= now())::int as due from mediadock.inbox`
    if (row?.['waiting'] > 0 && row?.['due'] === 0)
      await sql`update mediadock.inbox set due_at = now() where claims > 0`
    return row?.['waiting'] === 0
  }, withinMs)
}
