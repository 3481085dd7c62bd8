import { setTimeout as delay } from 'node:timers/promises'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createPool } from '../../../src/runtime/postgres/postgres.ts'
import { testServers, withTestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { startProviderStand } from '../../support/provider-stand.ts'
import { startTestReceiver } from '../../support/receiver.ts'
import { okImage } from '../../support/webhooks.ts'
import { store } from '../../support/worker.ts'

describe.each(testServers)('on %s: a receiver that stops', (server) => {
  it('lands what it was just claiming', async () => {
    const { url, sql } = await withTestDatabase(server)
    const stand = await startProviderStand()
    onTestFinished(() => stand.close())
    // No answer: it is landed without one, after a second.
    stand.answer(() => {})
    const pool = createPool({ url, max: 1 })
    await store(pool.db, [okImage().body, okImage().body])
    await pool.close()

    const claimWaits = async () =>
      (
        await sql`select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%update mediadock.inbox%'`
      ).length > 0
    const isClaiming = Promise.withResolvers<void>()
    const mayClaim = Promise.withResolvers<void>()
    const locked = sql.begin(async (tx) => {
      await tx`lock table mediadock.inbox in share mode`
      isClaiming.resolve()
      await mayClaim.promise
    })
    await isClaiming.promise
    const receiver = await startTestReceiver({ databaseUrl: url, providerUrl: stand.url })
    await eventually(claimWaits)
    const stopped = receiver.stop()
    await delay(300)
    mayClaim.resolve()
    await Promise.all([locked, stopped])
    expect(await sql`select from mediadock.inbox`).toEqual([])
    expect(await sql`select from mediadock.results where status = 'COMPLETED'`).toHaveLength(2)
  })
})
