import fs from 'node:fs/promises'
import net from 'node:net'
import { afterEach, describe, expect, it, onTestFinished } from 'vitest'
import { createLogger } from '../../src/platform/logger.ts'
import { openProvider, createKey, grantCredits, setFaults } from '../../src/provider/operating/commands.ts'
import { startProvider } from '../../src/provider/program.ts'
import { withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from './support/free-port.ts'
import { call, testSettings } from './support/running-provider.ts'

const logger = createLogger('silent')
const cleanups: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup()
})

async function settingsOf(changes = {}) {
  const database = await withTestDatabase()
  const settings = await testSettings(database.url, changes)
  onTestFinished(() => fs.rm(settings.mediaDir, { recursive: true, force: true }))
  const { deps, close } = openProvider({ databaseUrl: database.url, secretKey: settings.secretKey })
  cleanups.push(close)
  return { settings, deps, database }
}

describe('a provider', () => {
  it('that stops finishes or releases running requests, and continues them after a restart', async () => {
    const { settings, deps, database } = await settingsOf()
    const key = await createKey(deps, { account: 'a', name: 'k', environment: 'sandbox' })
    await setFaults(deps, key.id, { slow_seconds: 600 })
    const first = await startProvider({ settings, logger })
    const body = { input: { prompt: 'x' } }
    const { body: submitted } = await call(first.urls['api'] ?? '', 'POST', '/v1/models/aurora-image', {
      key: key.api_key,
      body,
    })
    const state = async () =>
      (await database.sql`select status, attempts, claims from provider.requests where id = ${submitted.request_id}`)[0]
    await eventually(async () => (await state())?.['status'] === 'IN_PROGRESS')
    const started = Date.now()
    await first.stop(100)
    expect(Date.now() - started).toBeLessThan(60_000)
    expect(await state()).toMatchObject({ status: 'IN_PROGRESS', attempts: 0, claims: 2 })
    const second = await startProvider({ settings, logger })
    cleanups.unshift(() => second.stop(0))
    await eventually(async () => (await state())?.['attempts'] === 1)
  })

  it('answers status calls while more submits wait for one account than it has connections', async () => {
    const { settings, deps, database } = await settingsOf()
    const busy = await createKey(deps, { account: 'busy', name: 'k', environment: 'live' })
    await grantCredits(deps, { account: 'busy', credits: 1000 })
    const other = await createKey(deps, { account: 'other', name: 'k', environment: 'sandbox' })
    const running = await startProvider({ settings, logger })
    cleanups.unshift(() => running.stop(0))
    const url = running.urls['api'] ?? ''
    const submit = (key: string) =>
      call(url, 'POST', '/v1/models/aurora-image', { key, body: { input: { prompt: 'x' } } })
    const { body: known } = await submit(other.api_key)

    const waiting = await database.sql.begin(async (sql) => {
      await sql`select from provider.accounts where id = 'busy' for update`
      const submits = Array.from({ length: 2 * settings.databasePoolSize }, () => submit(busy.api_key))
      await eventually(async () => {
        const [row] =
          await database.sql`select count(*)::int as n from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
        return row?.['n'] >= settings.databasePoolSize / 2
      })
      expect(await call(url, 'GET', `/v1/requests/${known.request_id}/status`, { key: other.api_key })).toMatchObject({
        status: 200,
        body: { status: 'COMPLETED' },
      })
      // Not awaited here: they end when the lock does.
      return { submits }
    })
    for (const { status } of await Promise.all(waiting.submits)) expect(status).toBe(200)
  })

  it('that answered 503 to a submit does not store it later', async () => {
    const { settings, deps, database } = await settingsOf()
    const { api_key: key } = await createKey(deps, { account: 'a', name: 'k', environment: 'live' })
    await grantCredits(deps, { account: 'a', credits: 10 })
    const running = await startProvider({ settings, logger })
    cleanups.unshift(() => running.stop(0))
    await database.sql.begin(async (sql) => {
      await sql`select from provider.accounts where id = 'a' for update`
      const answer = await call(running.urls['api'] ?? '', 'POST', '/v1/models/aurora-image', {
        key,
        body: { input: { prompt: 'x' } },
      })
      expect(answer).toMatchObject({ status: 503, body: { error: { code: 'unavailable' } } })
      const [waiting] =
        await sql`select count(*)::int as n from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
      expect(waiting).toEqual({ n: 0 })
    })
    expect(await database.sql`select count(*)::int as n from provider.requests`).toEqual([{ n: 0 }])
  })

  it.each([
    ['PROVIDER_PORT', 'port'],
    ['PROVIDER_CONSOLE_PORT', 'consolePort'],
  ])('names the setting for a port in use: %s', async (name, setting) => {
    const taken = net.createServer()
    const port = await freePort()
    await new Promise<void>((resolve) => taken.listen(port, '127.0.0.1', resolve))
    onTestFinished(() => void taken.close())
    const { settings } = await settingsOf({ [setting]: port })
    await expect(startProvider({ settings, logger })).rejects.toThrow(name)
  })

  it('is not ready while Postgres is away, answers 503 with Retry-After, and recovers', async () => {
    const { settings, deps, database } = await settingsOf()
    const key = await createKey(deps, { account: 'a', name: 'k', environment: 'sandbox' })
    // In front of Postgres, to be closed and opened.
    const relayPort = await freePort()
    const target = new URL(database.url)
    const postgresPort = Number(target.port)
    const sockets = new Set<net.Socket>()
    const relay = net.createServer((inward) => {
      const outward = net.connect(postgresPort, target.hostname)
      for (const socket of [inward, outward]) {
        sockets.add(socket)
        socket.on('error', () => {}).on('close', () => (inward.destroy(), outward.destroy()))
      }
      inward.pipe(outward).pipe(inward)
    })
    const open = () => new Promise<void>((resolve) => relay.listen(relayPort, '127.0.0.1', resolve))
    const shut = () => {
      relay.close()
      for (const socket of sockets) socket.destroy()
    }
    await open()
    target.port = String(relayPort)
    const program = await startProvider({ settings: { ...settings, databaseUrl: target.href }, logger })
    cleanups.unshift(async () => {
      await program.stop(0)
      shut()
    })
    const url = program.urls['api'] ?? ''
    expect((await call(url, 'GET', '/readyz')).status).toBe(200)
    shut()
    const answer = await call(url, 'GET', '/v1/account', { key: key.api_key })
    expect(answer).toMatchObject({ status: 503, body: { error: { type: 'api_error', code: 'unavailable' } } })
    expect(answer.headers.get('retry-after')).toBe('5')
    await eventually(async () => (await call(url, 'GET', '/readyz')).status === 503)
    expect((await call(url, 'GET', '/healthz')).status).toBe(200)
    await open()
    await eventually(async () => (await call(url, 'GET', '/v1/account', { key: key.api_key })).status === 200)
    await eventually(async () => (await call(url, 'GET', '/readyz')).status === 200)
  })
})
