import { describe, expect, it, onTestFinished } from 'vitest'
import { createLogger } from '../../src/platform/logger.ts'
import { createKey, openProvider } from '../../src/provider/operating/commands.ts'
import { startProvider } from '../../src/provider/program.ts'
import { preferredServer, withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { call, testSettings } from './support/running-provider.ts'

async function setUp() {
  const database = await withTestDatabase(preferredServer)
  const settings = await testSettings(database.url)
  const { deps, close } = openProvider({ databaseUrl: database.url, secretKey: settings.secretKey })
  const { api_key: key } = await createKey(deps, { account: 'a', name: 'k', environment: 'sandbox' })
  await close()
  const program = await startProvider({ settings, logger: createLogger('silent') })
  onTestFinished(() => program.stop(0))
  const url = program.urls['api'] ?? ''
  return { database, program, url, key, ready: async () => (await call(url, 'GET', '/readyz')).status }
}

// release/provider-readiness.test.ts stops a process; start/receiver.test.ts does so with the receiver.
describe("the provider's GET /readyz", () => {
  it('is answered from memory while a query to Postgres hangs', async () => {
    const { database, ready } = await setUp()
    expect(await ready()).toBe(200)
    await database.sql.begin(async (sql) => {
      await sql`lock table provider.migrations in access exclusive mode`
      const answers = Array.from({ length: 10 }, ready)
      expect(new Set(await Promise.all(answers))).toEqual(new Set([200]))
      await eventually(async () => (await ready()) === 503)
    })
    await eventually(async () => (await ready()) === 200)
  })

  it('is 503 while Postgres is read-only or a migration is missing', async () => {
    const { database, ready } = await setUp()
    const { sql } = database
    const name = new URL(database.url).pathname.slice(1)
    await sql.unsafe(`alter database ${name} set default_transaction_read_only = on`)
    await sql`select pg_terminate_backend(pid) from pg_stat_activity where datname = ${name} and application_name = 'mediadock'`
    await eventually(async () => (await ready()) === 503)
    await sql.unsafe(`alter database ${name} reset default_transaction_read_only`)
    await eventually(async () => (await ready()) === 200)
    await sql`alter table provider.migrations rename to put_aside`
    await eventually(async () => (await ready()) === 503)
    await sql`alter table provider.put_aside rename to migrations`
    await eventually(async () => (await ready()) === 200)
  })

  it('is 503 as soon as a stop begins, while calls are still answered', async () => {
    const { program, url, key, ready } = await setUp()
    expect(await ready()).toBe(200)
    program.retire?.()
    expect(await ready()).toBe(503)
    expect((await call(url, 'GET', '/healthz')).status).toBe(200)
    expect((await call(url, 'GET', '/v1/account', { key })).status).toBe(200)
  })
})
