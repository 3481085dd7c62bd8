import { randomUUID } from 'node:crypto'
import { Counter } from 'prom-client'
import { expect, it, onTestFinished } from 'vitest'
import { createPool } from '../../../src/platform/postgres/postgres.ts'
import { createQuarantine } from '../../../src/receiver/intake/quarantine.ts'
import { withTestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { deliver, failed } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

const causes = ['missing_header', 'malformed_header', 'no_matching_secret', 'timestamp_too_old']

async function withQuarantine({ maxRows = 10_000, maxBytes = 67_108_864 } = {}) {
  const { url, sql } = await withTestDatabase()
  const pool = createPool({ url, max: 1 })
  onTestFinished(() => pool.close())
  const dropped = new Counter({ name: 'unread', help: 'unread', registers: [] })
  const quarantine = createQuarantine({
    db: pool.db,
    clock: () => new Date(),
    dropped,
    maxRows,
    maxBytes,
    wake: () => {},
    signal: AbortSignal.abort(),
  })
  const record = (
    reason: string,
    {
      remote = '192.0.2.1',
      headers = {},
      body = Buffer.alloc(0),
    }: { remote?: string; headers?: Record<string, string>; body?: Buffer } = {},
  ) =>
    quarantine.record({ arrivedAt: new Date(), reason, webhookId: randomUUID(), remote, headers: () => headers, body })
  const writeAll = async () => {
    while ((await quarantine.runOnce()).more);
  }
  const kept = async () => {
    const rows = await sql<{ reason: string; source: string; n: number }[]>`
      select reason, source, count(*)::int as n from mediadock.quarantine group by reason, source order by reason, source`
    return rows.map(({ reason, source, n }) => [reason, source, n])
  }
  const keptOf = async (source: string) =>
    (await kept()).filter((row) => row[1] === source).reduce((sum, row) => sum + Number(row[2]), 0)
  return {
    quarantine,
    record,
    writeAll,
    kept,
    keptOf,
    sql,
    droppedRows: async () => (await dropped.get()).values[0]?.value ?? 0,
  }
}

it('counts headers and rows, not only bodies: memory is bounded, and dropped rows are counted', async () => {
  const { quarantine, record, droppedRows } = await withQuarantine()
  const headers = { 'x-filler': 'x'.repeat(8000) }
  for (let n = 0; n < 20_000; n += 1) record('missing_header', { headers })
  expect(quarantine.waiting()).toBeLessThan(2600)
  expect((await droppedRows()) + quarantine.waiting()).toBe(20_000)
  for (let n = 0; n < 100_000; n += 1) record('malformed_header')
  expect(quarantine.waiting()).toBeLessThan(41_000)
  expect((await droppedRows()) + quarantine.waiting()).toBe(120_000)
})

it('strangers that fill the memory leave room for a known sender', async () => {
  const { record, writeAll, keptOf, sql } = await withQuarantine()
  await sql`insert into mediadock.known_senders values ('live', '198.51.100.7', now())`
  await writeAll()
  const body = Buffer.alloc(1_048_576, 'x')
  for (let n = 0; n < 40; n += 1) {
    for (const reason of causes) for (const remote of ['192.0.2.1', '203.0.113.1']) record(reason, { remote, body })
  }
  for (let n = 0; n < 20; n += 1)
    record('no_matching_secret', { remote: '198.51.100.7', body: Buffer.alloc(100_000, 'x') })
  await writeAll()
  expect(await keptOf('198.51.100.7')).toBe(20)
})

it('a stranger with 2,600 networks displaces no known sender, in memory and in the table, on any replica', async () => {
  const { record, writeAll, keptOf, sql } = await withQuarantine()
  await sql`
    insert into mediadock.known_senders values ('live', '198.51.100.7', now()), ('other', '198.51.101.7', now())`
  await writeAll()
  const known = ['198.51.100.7', '198.51.101.7']
  for (const remote of known) for (let n = 0; n < 2000; n += 1) record('no_matching_secret', { remote })
  await writeAll()
  for (let n = 0; n < 2600; n += 1) {
    for (const reason of causes)
      record(reason, { remote: `10.${n >> 8}.${n & 255}.1`, headers: { filler: 'x'.repeat(2000) } })
    if (n === 1300)
      for (const remote of known)
        for (let m = 0; m < 200; m += 1) record('no_matching_secret', { remote, body: Buffer.alloc(10_000) })
  }
  await writeAll()
  expect([await keptOf('198.51.100.7'), await keptOf('198.51.101.7')]).toEqual([2200, 2200])
})

it('forgets a sender after a week, and keeps the latest 64 per key', async () => {
  const { writeAll, sql } = await withQuarantine()
  await sql`insert into mediadock.known_senders values ('live', '198.51.100.7', now() - interval '8 days'), ('live', '198.51.100.8', now() - interval '6 days')`
  await sql`
    insert into mediadock.known_senders select 'other', '192.0.2.' || n, now() + make_interval(secs => n)
    from generate_series(1, 200) as n`
  await writeAll()
  const known = (await sql`select source from mediadock.known_senders`).map((row) => row['source'])
  expect(known).toHaveLength(1 + 64)
  expect(known).toEqual(expect.arrayContaining(['198.51.100.8', '192.0.2.137']))
  expect(known).not.toContain('192.0.2.136')
})

it('deletes the oldest rows of the table first, and gives one sender at most half of the room', async () => {
  const { record, writeAll, keptOf, sql } = await withQuarantine({ maxRows: 30 })
  for (let n = 0; n < 10; n += 1) record('no_matching_secret', { remote: '198.51.100.7' })
  await writeAll()
  for (let n = 0; n < 250; n += 1) record(`cause ${n}`)
  await writeAll()
  expect([await keptOf('198.51.100.7'), await keptOf('192.0.2.1')]).toEqual([10, 15])
  const oldest = await sql`select reason from mediadock.quarantine where source = '192.0.2.1' order by id limit 1`
  expect(oldest).toEqual([{ reason: 'cause 235' }])
  for (let n = 0; n < 10; n += 1) record('no_matching_secret', { remote: '2001:db8::1' })
  await writeAll()
  expect((await keptOf('198.51.100.7')) + (await keptOf('2001:db8:0:0::/64'))).toBe(15)
})

it('bounds the bytes of the table, headers included', async () => {
  const { record, writeAll, sql } = await withQuarantine({ maxBytes: 100_000 })
  for (let n = 0; n < 300; n += 1)
    record('missing_header', { remote: `192.0.2.${1 + (n % 2)}`, headers: { 'x-filler': 'x'.repeat(4000) } })
  await writeAll()
  const [held] =
    await sql`select sum(octet_length(body) + octet_length(headers::text))::int as bytes, count(*)::int as n from mediadock.quarantine`
  expect(held?.['bytes']).toBeLessThanOrEqual(100_000)
  expect(held?.['n']).toBeGreaterThan(20)
})

it('a sender of authentic deliveries becomes known when they are in the log', async () => {
  const {
    database: { sql },
    receiver,
    stop,
  } = await withReceiver()
  onTestFinished(stop)
  await deliver(receiver.webhookUrl, failed().body, { secret: 'whsec_nobody' })
  expect((await deliver(receiver.webhookUrl, failed().body)).status).toBe(200)
  const [row] = await eventually(async () => {
    const rows = await sql`select key_name, source from mediadock.known_senders`
    return rows.length > 0 ? rows : undefined
  })
  expect(row).toEqual({ key_name: 'live', source: '127.0.0.1' })
})

it("a sender that repeats another's delivery does not become known, and IPv6 senders do by their network", async () => {
  const {
    database: { sql },
    receiver,
    stop,
  } = await withReceiver()
  onTestFinished(stop)
  const { body } = failed()
  const webhookId = randomUUID()
  await deliver(receiver.webhookUrl, body, { webhookId, headers: { 'x-forwarded-for': '198.51.100.1' } })
  await deliver(receiver.webhookUrl, body, { webhookId, headers: { 'x-forwarded-for': '203.0.113.66' } })
  await eventually(async () => (await sql`select from mediadock.arrivals where outcome = 'duplicate'`).length === 1)
  await deliver(receiver.webhookUrl, failed().body, { headers: { 'x-forwarded-for': '2001:db8:1::2' } })
  const known = () => sql`select source from mediadock.known_senders order by source`
  await eventually(async () => (await known()).length === 2)
  expect(await known()).toEqual([{ source: '198.51.100.1' }, { source: '2001:db8:1:0::/64' }])
})
