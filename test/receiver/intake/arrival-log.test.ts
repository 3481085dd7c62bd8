import { randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import path from 'node:path'
import { Registry } from 'prom-client'
import request from 'supertest'
import { expect, it, onTestFinished } from 'vitest'
import { createPool } from '../../../src/platform/postgres/postgres.ts'
import { postgresTime } from '../../../src/platform/postgres/time.ts'
import { createArrivalLog, createRefusedBudget, type Arrival } from '../../../src/receiver/intake/arrival-log.ts'
import { createReceiverMetrics } from '../../../src/receiver/metrics.ts'
import { watchedLogger } from '../../platform/support/watched-logger.ts'
import { withTestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { sandboxKey } from '../../support/receiver.ts'
import { deliver, failed } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

const midnight = Date.parse('2026-03-01T00:00:00Z')

function refused(at: number): Arrival {
  return {
    row: {
      arrived_at: new Date(at),
      outcome: 'refused',
      source_name: null,
      reason: 'no_matching_secret',
      status: 401,
      webhook_id: randomUUID(),
      delivery_id: randomUUID(),
      remote: '192.0.2.1',
      bytes: 2,
      skew_seconds: 0,
      ack_ms: 1,
      folded: 0,
    },
    timestampMismatch: false,
  }
}

it('bounds refused arrivals with a row of their own to 100,000 per day', () => {
  const mayHaveOwnRow = createRefusedBudget()
  let own = 0
  for (let n = 0; n < 108_000; n += 1) own += mayHaveOwnRow(new Date(midnight + n * 10)) ? 1 : 0
  expect(own).toBe(100_000)
  expect(mayHaveOwnRow(new Date(midnight + 86_400_000))).toBe(true)
})

it('folds refused arrivals beyond the pace into one row per cause and minute, with counts', async () => {
  const { url, sql } = await withTestDatabase()
  const pool = createPool({ url, max: 1 })
  onTestFinished(() => pool.close())
  let now = midnight
  const { logger, lines } = watchedLogger()
  const limits = { fetchRatePerMinute: 100, stuckAfterSeconds: 120 }
  const unread = { registry: new Registry(), db: pool.db, time: postgresTime, logger, ...limits }
  const log = createArrivalLog({
    db: pool.db,
    logger,
    clock: () => new Date(now),
    metrics: createReceiverMetrics(unread),
    wake: () => {},
  })
  let own = 0
  for (const minute of [0, 1]) {
    now = midnight + minute * 60_000
    for (let n = 0; n < 3000; n += 1) own += log.record(refused(now)) ? 1 : 0
    while ((await log.runOnce()).more);
  }
  log.unfold()
  while ((await log.runOnce()).more);
  // A burst of 1,000 each, since a minute has passed between them.
  expect(own).toBe(2000)
  expect(lines().map((line) => JSON.parse(line).left_out)).toEqual([2000, 2000])
  const [row] =
    await sql`select sum(1 + folded)::int as arrivals, count(*) filter (where folded > 0)::int as folds from mediadock.arrivals`
  expect(row).toEqual({ arrivals: 6000, folds: 2 })
})

it('reports the stored bytes of each key, per day in the log and as a metric', async () => {
  const {
    database: { sql },
    receiver,
    stop,
  } = await withReceiver()
  onTestFinished(stop)
  const { body } = failed()
  const webhookId = randomUUID()
  for (let time = 0; time < 2; time += 1) await deliver(receiver.webhookUrl, body, { webhookId })
  await deliver(receiver.webhookUrl, Buffer.from('no notification'), {})
  await deliver(receiver.webhookUrl, body, { secret: sandboxKey.signing_secret })
  await deliver(receiver.webhookUrl, body, { secret: 'whsec_nobody' })
  await eventually(async () => (await sql`select from mediadock.arrivals`).length === 5)
  const page = await fs.readFile(path.resolve(import.meta.dirname, '../../../docs/limits.md'), 'utf8')
  const [, statement = ''] = /```sql\n(select key_name[^`]*)```/.exec(page) ?? []
  const rows = await sql.unsafe(statement)
  const stored = [
    { key_name: 'live', deliveries: '2', bytes: String(body.length + 15) },
    { key_name: 'sandbox', deliveries: '1', bytes: String(body.length) },
  ]
  expect(rows).toMatchObject(stored)
  const metrics = await eventually(async () => {
    const { text } = await request(receiver.internalUrl).get('metrics')
    return text.includes('mediadock_stored_bytes_total{key_name="sandbox"}') ? text : undefined
  })
  for (const { key_name: key, bytes } of stored)
    expect(metrics).toContain(`mediadock_stored_bytes_total{key_name="${key}"} ${bytes}\n`)
})
