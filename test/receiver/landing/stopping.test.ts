import { setTimeout as delay } from 'node:timers/promises'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createPool } from '../../../src/platform/postgres/postgres.ts'
import { createAcceptor } from '../../../src/receiver/intake/accept.ts'
import { createHandOver } from '../../../src/receiver/landing/hand-over.ts'
import { startPostgresProxy } from '../../platform/support/postgres-proxy.ts'
import { withTestDatabase, usualServers } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { startProviderStand } from '../../support/provider-stand.ts'
import { startTestReceiver } from '../../support/receiver.ts'
import { aroundStatements } from '../../support/statements.ts'
import { deliver, failed, okImage } from '../../support/webhooks.ts'
import { createTestWorker, newDelivery, store } from '../../support/worker.ts'

describe.each(usualServers)('on %s: a receiver that stops', (server) => {
  it('lands deliveries whose claim was in progress', async () => {
    const { url, sql } = await withTestDatabase(server)
    const stand = await startProviderStand()
    onTestFinished(() => stand.close())
    // No answer: it is landed without one, after a second.
    stand.answer(() => {})
    const pool = createPool({ url, max: 1, keepsPlans: true })
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

  it('releases all ready deliveries after one failed batch while Postgres is away', async () => {
    const { url } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    const stopping = new AbortController()
    let asked = 0
    const db = aroundStatements(deps.db, async () => {
      asked += 1
      await delay(20)
      throw Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
    })
    const handOver = createHandOver({
      ...deps,
      db,
      giveWay: async () => {},
      wakeInbox: () => {},
      isPrepared: () => true,
      signal: stopping.signal,
    })
    const acceptor = createAcceptor({ db: deps.db, logger: deps.logger, handOver, onStored: () => {} })
    await Promise.all(Array.from({ length: 900 }, () => acceptor.accept(newDelivery(failed().body))))
    stopping.abort()
    await handOver.idle()
    expect(asked).toBeLessThan(20)
  })

  it('ends soon after its grace period while Postgres does not answer', async () => {
    const { url, sql } = await withTestDatabase(server)
    const proxy = await startPostgresProxy(url)
    const receiver = await startTestReceiver({ databaseUrl: proxy.url, followsUp: true })
    await deliver(receiver.webhookUrl, failed().body)
    await eventually(async () => (await sql`select from mediadock.results`).length === 1)
    proxy.swallowAfter(0)
    // By then its rounds wait for answers.
    await delay(1500)
    const started = performance.now()
    await receiver.stop()
    // The grace is 2 s; then 2 s for the last writes, and 5 s until the connections are cut.
    expect(performance.now() - started).toBeLessThan(12_000)
  })

  it('releases the polls that it aborts, without counting them as failures of the provider', async () => {
    const { url, sql } = await withTestDatabase(server)
    const stand = await startProviderStand()
    onTestFinished(() => stand.close())
    stand.answer(() => {})
    const receiver = await startTestReceiver({ databaseUrl: url, providerUrl: stand.url, followsUp: true })
    await sql`insert into mediadock.requests (request_id, key_name, next_poll_at) select gen_random_uuid(), 'live', now() from generate_series(1, 6)`
    await eventually(() => stand.calls.length === 6)
    await receiver.stop()
    expect(await sql`select from mediadock.call_budgets where failing_since is not null`).toEqual([])
    expect(await sql`select from mediadock.polls`).toEqual([])
    expect(await sql`select from mediadock.requests where next_poll_at <= now() and polls = 0`).toHaveLength(6)
  })
})
