import { randomUUID } from 'node:crypto'
import { expect, it, onTestFinished } from 'vitest'
import { isNoAnswer } from '../../../src/platform/postgres/errors.ts'
import { createPool } from '../../../src/platform/postgres/postgres.ts'
import { verifyQuarantine } from '../../../src/receiver/on-call/verify-quarantine.ts'
import { countDeliveries } from '../../../src/receiver/queries/deliveries.ts'
import { messageTypes, startOmittingProxy } from '../../platform/support/omitting-proxy.ts'
import { preferredServer, withTestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { keysOf, liveKey, startTestReceiver } from '../../support/receiver.ts'
import { deliver, failed } from '../../support/webhooks.ts'
import { call } from './calls.ts'

/* A list that is empty, or a count of 0, because its answer got lost is good news that is not true. */

const lost: [string, number[]][] = [
  ['rows', [messageTypes.dataRow]],
  ['rows and its end', [messageTypes.dataRow, messageTypes.commandComplete]],
]
const requestId = randomUUID()
const paths = [
  'deliveries',
  'arrivals',
  'requests',
  'quarantine',
  'stats',
  'reconciler',
  `requests/${requestId}`,
  `results/${requestId}`,
]

it.each(lost)(
  'an answer of Postgres without its %s causes 503, never an empty list, a count of 0 or a 404',
  async (_what, types) => {
    const database = await withTestDatabase(preferredServer)
    const proxy = await startOmittingProxy(database.url)
    const receiver = await startTestReceiver({ databaseUrl: proxy.url })
    const pool = createPool({ url: proxy.url, max: 1 })
    onTestFinished(async () => {
      proxy.omit()
      await Promise.all([receiver.stop(), pool.close()])
    })
    await deliver(receiver.webhookUrl, failed(requestId).body)
    await deliver(receiver.webhookUrl, failed().body, { secret: 'whsec_nobody' })
    const rows = async (table: string) => (await database.sql`select from ${database.sql(`mediadock.${table}`)}`).length
    await eventually(
      async () => (await rows('arrivals')) === 2 && (await rows('quarantine')) === 1 && (await rows('requests')) === 1,
    )

    await receiver.deps.background.reconcileNow()
    for (const path of paths) {
      await eventually(async () => (await call(receiver, `GET /api/${path}`)).status === 200)
      proxy.omit(...types)
      const { status, json } = await call(receiver, `GET /api/${path}`)
      proxy.omit()
      expect([path, status, json.error?.code]).toEqual([path, 503, 'unavailable'])
    }

    const keys = () => keysOf(liveKey)
    for (const ask of [
      () => countDeliveries(pool.db, {}),
      () => verifyQuarantine({ db: pool.db, keys, wake: () => {} }),
    ]) {
      await eventually(() =>
        ask().then(
          () => true,
          () => false,
        ),
      )
      proxy.omit(...types)
      const failure: unknown = await ask().catch((error: unknown) => error)
      proxy.omit()
      expect(isNoAnswer(failure), JSON.stringify(failure)).toBe(true)
    }
  },
  60_000,
)
