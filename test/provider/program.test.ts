import fs from 'node:fs/promises'
import net from 'node:net'
import os from 'node:os'
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { createLogger } from '../../src/platform/logger.ts'
import { createEngineHost } from '../../src/provider/engines/engine-host.ts'
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

describe('the engine process', () => {
  const job = {
    requestId: 'r',
    model: 'aurora-image',
    input: { prompt: 'x', aspect_ratio: '1:1' },
    references: [],
    mediaDir: '/nowhere',
    mediaUrl: 'http://m',
  }
  /** A host whose process ends with the test. `run` starts one generation that reports to nobody. */
  const startEngines = () => {
    const host = createEngineHost({ logger })
    onTestFinished(host.close)
    const run = (name: string, signal = AbortSignal.timeout(100_000)) =>
      host.run({ name, type: 'image', settings: {} }, job, async () => {}, signal)
    return { host, run }
  }

  it('fails its generations when killed, and the next one gets a new process', async () => {
    const { host, run } = startEngines()
    const lost = run('local-image')
    process.kill(host.pid() ?? expect.fail('no engine process'), 'SIGKILL')
    await expect(lost).rejects.toThrow('the engine process ended')
    await expect(run('no-engine')).rejects.toThrow('no engine is installed')
  })

  it('fails its generations if it cannot be started, and the next one tries again', async () => {
    const { execPath } = process
    const { run } = startEngines()
    onTestFinished(() => void (process.execPath = execPath))
    process.execPath = '/nowhere/node'
    const failures = await Promise.allSettled([run('no-engine'), run('no-engine')])
    for (const failure of failures)
      expect(failure).toMatchObject({ reason: { message: expect.stringContaining('ENOENT') } })
    process.execPath = execPath
    await expect(run('no-engine')).rejects.toThrow('no engine is installed')
  })

  it('uses the cores that the API and Postgres leave, has no secret and a bounded heap, and is killed first when memory is short', async () => {
    vi.stubEnv('PROVIDER_SECRET_KEY', 'a secret of ours')
    onTestFinished(() => void vi.unstubAllEnvs())
    const { host, run } = startEngines()
    // Its failure shows that the process has started.
    await expect(run('no-engine')).rejects.toThrow('no engine is installed')
    const pid = host.pid() ?? expect.fail('no engine process')
    expect(os.getPriority(pid)).toBe(19)
    const read = (name: string) => fs.readFile(`/proc/${pid}/${name}`, 'utf8')
    const weighsSessions = await fs.readFile('/proc/sys/kernel/sched_autogroup_enabled', 'utf8').catch(() => '0')
    if (weighsSessions.trim() === '1') expect(await read('autogroup')).toMatch(/nice 19$/m)
    const names = (await read('environ')).split('\0').map((variable) => variable.split('=')[0])
    expect(names).toContain('PATH')
    expect(names).not.toContain('PROVIDER_SECRET_KEY')
    expect(await read('cmdline')).toContain('--max-old-space-size=512')
    expect((await read('oom_score_adj')).trim()).toBe('1000')
  })

  it('reports a client-safe failure, and stops waiting when aborted', async () => {
    const { run } = startEngines()
    await expect(run('no-engine')).rejects.toMatchObject({ name: 'EngineError' })
    const abort = new AbortController()
    const aborted = run('local-image', abort.signal)
    abort.abort(new Error('no longer wanted'))
    await expect(aborted).rejects.toThrow('no longer wanted')
  })

  it('that breaks on a request leaves it FAILED with a sanitized error and a refund', async () => {
    const { settings, deps, database } = await settingsOf()
    const key = await createKey(deps, { account: 'a', name: 'k', environment: 'live' })
    await grantCredits(deps, { account: 'a', credits: 10 })
    // The media folder is a file, so every engine fails for an internal reason.
    await fs.writeFile(`${settings.mediaDir}/file`, '')
    const program = await startProvider({ settings: { ...settings, mediaDir: `${settings.mediaDir}/file` }, logger })
    cleanups.unshift(() => program.stop(0))
    const url = program.urls['api'] ?? ''
    const { body } = await call(url, 'POST', '/v1/models/aurora-image', {
      key: key.api_key,
      body: { input: { prompt: 'x' } },
    })
    const result = await eventually(async () => {
      // Ends the pause, not a lease: a claim and its end are two.
      await database.sql`update provider.requests set lease_until = now() where id = ${body.request_id} and claims % 2 = 0`
      const answer = await call(url, 'GET', `/v1/requests/${body.request_id}`, { key: key.api_key })
      return answer.status === 200 && answer
      // The engine process has the lowest priority, and is started up to three times.
    }, 100_000)
    expect(result.body).toMatchObject({
      status: 'FAILED',
      cost: 0,
      error: { code: 'GENERATION_FAILED', message: 'the generation could not be completed' },
    })
    expect((await call(url, 'GET', '/v1/account', { key: key.api_key })).body.balance).toEqual({ credits: 10 })
  })
})
