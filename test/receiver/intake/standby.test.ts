import { randomUUID } from 'node:crypto'
import path from 'node:path'
import postgres from 'postgres'
import { expect, it, onTestFinished } from 'vitest'
import { migrate } from '../../../src/runtime/postgres/migrate.ts'
import { eventually } from '../../support/eventually.ts'
import { describeOnPackaged } from '../../support/own-packaged-postgres.ts'
import { startTestReceiver } from '../../support/receiver.ts'
import { waitForStandby, withStandby } from '../../support/standby.ts'
import { deliver, failed } from '../../support/webhooks.ts'

const folder = path.resolve(import.meta.dirname, '../../../drizzle/receiver')

describeOnPackaged('a synchronous standby', () => {
  // A primary that crashes while it waits for the standby comes back with what the standby never got.
  it('that is away keeps what only the primary has from being acknowledged, as a duplicate too', { timeout: 90_000 }, async () => {
    const { primary, standby } = await withStandby()
    await migrate({ url: primary.url, schema: 'mediadock', folder })
    await waitForStandby(primary)
    const receiver = await startTestReceiver({ databaseUrl: primary.url })
    onTestFinished(receiver.stop)
    const { body } = failed()
    const webhookId = randomUUID()
    const send = () => deliver(receiver.webhookUrl, body, { webhookId })

    await standby.freeze()
    const sending = send()
    const sql = postgres(primary.url, { max: 1, onnotice: () => {} })
    onTestFinished(() => sql.end({ timeout: 1 }))
    await eventually(
      async () => (await sql`select from pg_stat_activity where wait_event = 'SyncRep' and query like '%with durable%'`).length > 0,
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
    expect(await eventually(async () => (await send()).status === 200 && send(), 20_000)).toMatchObject({ json: { status: 'duplicate' } })
  })
})
