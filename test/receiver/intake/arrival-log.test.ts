import { randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import path from 'node:path'
import { Registry } from 'prom-client'
import request from 'supertest'
import { expect, it, onTestFinished } from 'vitest'
import { createPool } from '../../../src/platform/postgres/postgres.ts'
import { postgresTime } from '../../../src/platform/postgres/time.ts'
import { createArrivalLog, type Arrival } from '../../../src/receiver/intake/arrival-log.ts'
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

it(
  'bounds rows of refused arrivals per day, and folds the rest into one per cause and minute, with counts',
  { timeout: 120_000 },
  async () => {
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
    const minutes = 18
    let own = 0
    for (let minute = 0; minute < minutes; minute += 1) {
      for (let n = 0; n < 6000; n += 1) own += log.record(refused((now = midnight + minute * 60_000 + n * 10))) ? 1 : 0
      while ((await log.runOnce()).more);
    }
    log.unfold()
    while ((await log.runOnce()).more);
    expect(own).toBe(100_000)
    const folded: number[] = lines().map((line) => JSON.parse(line).left_out)
    expect(folded.reduce((sum, n) => sum + n, 0)).toBe(minutes * 6000 - own)
    const [row] =
      await sql`select count(*)::int as n, sum(1 + folded)::int as arrivals, count(*) filter (where folded > 0)::int as folds from mediadock.arrivals`
    expect(row).toMatchObject({ arrivals: minutes * 6000, folds: folded.length })
    expect(folded.length).toBeLessThanOrEqual(minutes)
    expect(log.record(refused(midnight + 86_400_000))).toBe(true)
  },
)

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
