import path from 'node:path'
import { pino } from 'pino'
import { describe, expect, it, onTestFinished } from 'vitest'
import { watchReadiness } from '../../src/platform/http/readiness.ts'
import { startPostgresProxy } from '../platform/support/postgres-proxy.ts'
import { withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { startTestReceiver } from '../support/receiver.ts'

const migrations = { schema: 'mediadock', folder: path.resolve(import.meta.dirname, '../../drizzle/receiver') }

async function askReadiness(databaseUrl: string) {
  const receiver = await startTestReceiver({ databaseUrl })
  onTestFinished(() => receiver.stop())
  const urls = [new URL('/readyz', receiver.webhookUrl).href, new URL('readyz', receiver.internalUrl).href]
  return { receiver, ready: () => Promise.all(urls.map(async (url) => (await fetch(url)).status)) }
}

describe('GET /readyz', () => {
  it('is answered from memory: unchanged during a query to Postgres, 503 once the last answer is 2 s old', async () => {
    const { url } = await withTestDatabase()
    const proxy = await startPostgresProxy(url)
    const { ready } = await askReadiness(proxy.url)
    expect(await ready()).toEqual([200, 200])
    proxy.swallowAfter(0)
    expect(await ready()).toEqual([200, 200])
    await eventually(async () => (await ready()).every((status) => status === 503))
    proxy.passOn()
    proxy.cut()
    await eventually(async () => (await ready()).every((status) => status === 200))
  })

  it('is 503 while Postgres is read-only, and 200 again afterwards', async () => {
    const { url, sql } = await withTestDatabase()
    const { ready } = await askReadiness(url)
    const name = new URL(url).pathname.slice(1)
    // Only a new session reads the setting.
    const reconnect = () =>
      sql`select pg_terminate_backend(pid) from pg_stat_activity where datname = ${name} and application_name = 'mediadock'`
    await sql.unsafe(`alter database ${name} set default_transaction_read_only = on`)
    await reconnect()
    await eventually(async () => (await ready()).every((status) => status === 503))
    await sql.unsafe(`alter database ${name} reset default_transaction_read_only`)
    await eventually(async () => (await ready()).every((status) => status === 200))
  })

  it('is 503 while a migration is missing', async () => {
    const { url, sql } = await withTestDatabase()
    const { ready } = await askReadiness(url)
    await sql`delete from mediadock.migrations where id = (select max(id) from mediadock.migrations)`
    await eventually(async () => (await ready()).every((status) => status === 503))
  })
})

it('logs each change of readiness once, with its cause', async () => {
  const { url } = await withTestDatabase()
  const proxy = await startPostgresProxy(url)
  const lines: string[] = []
  const logger = pino({ base: null }, { write: (line) => lines.push(line) })
  const readiness = await watchReadiness({
    url: proxy.url,
    ...migrations,
    logger,
    signal: new AbortController().signal,
  })
  onTestFinished(readiness.stop)
  proxy.swallowAfter(0)
  await eventually(() => !readiness.isReady())
  await eventually(() => proxy.accepted() >= 3)
  proxy.passOn()
  proxy.cut()
  await eventually(() => readiness.isReady())
  expect(lines.map((line) => line.match(/"msg":"(\w+ ?\w*):/)?.[1])).toEqual(['ready', 'not ready', 'ready'])
  expect(lines[1]).toContain('no answer in time (deadline)')
})

it('is 503 at once when a stop begins', async () => {
  const { url } = await withTestDatabase()
  const stopping = new AbortController()
  const readiness = await watchReadiness({
    url,
    ...migrations,
    logger: pino({ level: 'silent' }),
    signal: stopping.signal,
  })
  onTestFinished(readiness.stop)
  expect(readiness.isReady()).toBe(true)
  stopping.abort()
  expect(readiness.isReady()).toBe(false)
})
