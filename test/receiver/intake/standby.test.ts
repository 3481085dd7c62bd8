import { randomUUID } from 'node:crypto'
import path from 'node:path'
import postgres from 'postgres'
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest'
import { migrate } from '../../../src/platform/postgres/migrate.ts'
import { storeDeliveries } from '../../../src/receiver/intake/store.ts'
import { startRefusingPooler } from '../../platform/support/refusing-pooler.ts'
import { eventually } from '../../support/eventually.ts'
import { describeOnPackaged } from '../../support/own-packaged-postgres.ts'
import { startTestReceiver } from '../../support/receiver.ts'
import { removePair, startPair, waitForStandby, type Pair } from '../../support/standby.ts'
import { aroundStatements } from '../../support/statements.ts'
import { deliver, failed } from '../../support/webhooks.ts'
import { workOnce } from '../../support/work-once.ts'
import { createTestWorker, newDelivery, store } from '../../support/worker.ts'

const folder = path.resolve(import.meta.dirname, '../../../drizzle/receiver')

describeOnPackaged('a synchronous standby', () => {
  let pair: Pair
  beforeAll(async () => {
    pair = await startPair()
    await waitForStandby(pair.primary)
  })
  afterAll(() => removePair(pair))

  let databases = 0
  /** The URL of a new database of the primary. */
  async function migratedDatabase(): Promise<string> {
    databases += 1
    const admin = postgres(pair.primary.url, { max: 1, onnotice: () => {} })
    await admin.unsafe(`create database receiver_${databases}`)
    await admin.end({ timeout: 1 })
    const url = pair.primary.url.replace(/postgres$/, `receiver_${databases}`)
    await migrate({ url, schema: 'mediadock', folder })
    return url
  }

  it.each([
    ['', async (url: string) => url],
    [', behind a pooler that refuses settings', async (url: string) => startRefusingPooler(url, 1)],
  ])('is not acknowledged if its wait for the standby is canceled%s', async (_how, through) => {
    const { standby } = pair
    const url = await migratedDatabase()
    const sql = postgres(url, { max: 1, onnotice: () => {} })
    onTestFinished(() => sql.end({ timeout: 1 }))
    // Postgres tells of it by a warning, which a database may hide.
    await sql.unsafe(`alter database ${new URL(url).pathname.slice(1)} set client_min_messages = error`)
    const receiver = await startTestReceiver({ databaseUrl: await through(url) })
    onTestFinished(receiver.stop)

    await standby.freeze()
    const sending = deliver(receiver.webhookUrl, failed().body)
    await eventually(
      async () =>
        (
          await sql`select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep' and query like '%with durable%'`
        ).length > 0,
    )
    // It is there, on the primary alone, and Postgres says that all went well.
    expect(await sending).toMatchObject({ status: 503 })
    expect(await sql`select from mediadock.deliveries`).toHaveLength(1)
    standby.thaw()
  })

  it(
    'that does not answer blocks all landings at their commit: they are retried whole, not halved',
    { timeout: 120_000 },
    async () => {
      const { standby } = pair
      const url = await migratedDatabase()
      const [first, second] = [createTestWorker({ databaseUrl: url }), createTestWorker({ databaseUrl: url })]
      const sql = postgres(url, { max: 1, onnotice: () => {} })
      onTestFinished(() => sql.end({ timeout: 1 }))
      const secondsAgo = (seconds: number) => new Date(Date.now() - seconds * 1000)
      await storeDeliveries(first.db, [newDelivery(failed().body, secondsAgo(20))])
      await store(
        second.db,
        Array.from({ length: 64 }, () => failed().body),
      )

      await standby.freeze()
      // Its commit waits for the standby, and has the lock that everybody needs who notifies.
      first.setNow(secondsAgo(10))
      const held = workOnce(first)
      await eventually(async () => (await sql`select from pg_stat_activity where wait_event = 'SyncRep'`).length > 0)
      let statements = 0
      const counted = aroundStatements(second.db, (run) => {
        statements += 1
        return run()
      })
      second.setNow(secondsAgo(-1))
      const waiting = workOnce({ ...second, db: counted })
      // The claim, and three times the read of the requests and the same landing.
      await eventually(() => statements === 7)
      standby.thaw()
      expect(await held).toMatchObject({ claimed: 1, landed: 1 })
      expect(await waiting).toMatchObject({ claimed: 64, landed: 64, failed: 0 })
      expect(statements).toBe(7)
    },
  )

  // A primary that crashes while it waits for the standby comes back with what the standby never got.
  it(
    'that is away prevents acknowledging what only the primary has, also as a duplicate',
    { timeout: 120_000 },
    async () => {
      const { primary, standby } = pair
      const url = await migratedDatabase()
      const receiver = await startTestReceiver({ databaseUrl: url })
      onTestFinished(receiver.stop)
      const { body } = failed()
      const webhookId = randomUUID()
      const send = () => deliver(receiver.webhookUrl, body, { webhookId })

      await standby.freeze()
      const sending = send()
      const sql = postgres(url, { max: 1, onnotice: () => {} })
      onTestFinished(() => sql.end({ timeout: 1 }))
      await eventually(
        async () =>
          (await sql`select from pg_stat_activity where wait_event = 'SyncRep' and query like '%with durable%'`)
            .length > 0,
      )
      await primary.stop('immediate')
      expect(await sending).toMatchObject({ status: 503 })
      await primary.start()
      expect(await sql`select from mediadock.deliveries`).toHaveLength(1)
      // The first tries may meet the connections that are gone.
      for (let waitedMs = 0; waitedMs < 4000;) {
        const started = performance.now()
        expect(await send()).toMatchObject({ status: 503 })
        waitedMs = performance.now() - started
      }

      standby.thaw()
      expect(await eventually(async () => (await send()).status === 200 && send(), 20_000)).toMatchObject({
        json: { status: 'duplicate' },
      })
    },
  )
})
