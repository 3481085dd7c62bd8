import { randomUUID } from 'node:crypto'
import { Counter } from 'prom-client'
import { expect, it, onTestFinished } from 'vitest'
import { createQuarantine, verifyQuarantine } from '../../../src/receiver/intake/quarantine.ts'
import { createPool } from '../../../src/runtime/postgres/postgres.ts'
import { withTestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { startTestReceiver } from '../../support/receiver.ts'
import { deliver, failed } from '../../support/webhooks.ts'

async function withQuarantine({ maxRows = 10_000, maxBytes = 67_108_864 } = {}) {
  const { url, sql } = await withTestDatabase()
  const pool = createPool({ url, max: 1 })
  onTestFinished(() => pool.close())
  const dropped = new Counter({ name: 'unread', help: 'unread', registers: [] })
  const quarantine = createQuarantine({ db: pool.db, dropped, maxRows, maxBytes, wake: () => {}, signal: AbortSignal.abort() })
  const record = (reason: string, { remote = '192.0.2.1', headers = {}, body = Buffer.alloc(0) }: { remote?: string; headers?: Record<string, string>; body?: Buffer } = {}) =>
    quarantine.record({ arrivedAt: new Date(), reason, webhookId: randomUUID(), remote, headers: () => headers, body })
  const writeAll = async () => {
    while ((await quarantine.runOnce()).more);
  }
  const kept = async () => {
    const rows = await sql<{ reason: string; source: string; n: number }[]>`
      select reason, source, count(*)::int as n from mediadock.quarantine group by reason, source order by reason, source`
    return rows.map(({ reason, source, n }) => [reason, source, n])
  }
  return { quarantine, record, writeAll, kept, sql, droppedRows: async () => (await dropped.get()).values[0]?.value ?? 0 }
}

it('weighs headers and rows, not bodies alone: what waits is bounded, and the rest counted', async () => {
  const { quarantine, record, droppedRows } = await withQuarantine()
  const headers = { 'x-filler': 'x'.repeat(8000) }
  for (let n = 0; n < 20_000; n += 1) record('missing_header', { headers })
  expect(quarantine.waiting()).toBeLessThan(1000)
  expect((await droppedRows()) + quarantine.waiting()).toBe(20_000)
  for (let n = 0; n < 100_000; n += 1) record('malformed_header')
  expect(quarantine.waiting()).toBeLessThan(10_000)
})

it('of one sender and cause only so much waits, and there is room for the others', async () => {
  const { record, writeAll, kept } = await withQuarantine()
  for (let n = 0; n < 100; n += 1) record('no_matching_secret', { body: Buffer.alloc(1_048_576, 'x') })
  record('no_matching_secret', { remote: '198.51.100.7' })
  await writeAll()
  expect(await kept()).toContainEqual(['no_matching_secret', '198.51.100.7', 1])
})

it('in the table the oldest go first, of whoever has most there: a flood pushes out none but itself', async () => {
  const { record, writeAll, kept } = await withQuarantine({ maxRows: 30 })
  for (let n = 0; n < 10; n += 1) record('no_matching_secret', { remote: '198.51.100.7' })
  await writeAll()
  for (let n = 0; n < 250; n += 1) record('missing_header')
  for (let n = 0; n < 250; n += 1) record('no_matching_secret', { remote: '2001:db8::1' })
  await writeAll()
  expect(await kept()).toEqual([
    ['missing_header', '192.0.2.1', 10],
    ['no_matching_secret', '198.51.100.7', 10],
    ['no_matching_secret', '2001:db8:0:0::/64', 10],
  ])
})

it('holds the table to its bytes, headers included', async () => {
  const { record, writeAll, sql } = await withQuarantine({ maxBytes: 100_000 })
  for (let n = 0; n < 300; n += 1) record('missing_header', { headers: { 'x-filler': 'x'.repeat(4000) } })
  await writeAll()
  const [held] = await sql`select sum(octet_length(body) + octet_length(headers::text))::int as bytes, count(*)::int as n from mediadock.quarantine`
  expect(held?.['bytes']).toBeLessThanOrEqual(100_000)
  expect(held?.['n']).toBeGreaterThan(20)
})

it('is verified again in pages that are bounded in bytes', async () => {
  const { url, sql } = await withTestDatabase()
  const receiver = await startTestReceiver({ databaseUrl: url })
  onTestFinished(() => receiver.stop())
  const padding = Buffer.alloc(1_000_000, ' ')
  for (let n = 0; n < 6; n += 1) await deliver(receiver.webhookUrl, Buffer.concat([failed().body, padding]), { secret: 'whsec_new' })
  await eventually(async () => (await sql`select from mediadock.quarantine`).length === 6)
  const pages: number[] = []
  const secrets = [{ name: 'new', signingSecret: 'whsec_new' }]
  const keys = () => ({ ...receiver.deps.keys(), secrets })
  const verified = await verifyQuarantine({ ...receiver.deps, keys }, { onAccepted: (ids) => pages.push(ids.length) })
  expect(verified).toEqual({ checked: 6, accepted: 6, refused: 0 })
  expect(Math.max(...pages)).toBeLessThan(5)
})
