import fs from 'node:fs/promises'
import os from 'node:os'
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { createLogger } from '../../src/platform/logger.ts'
import { createEngineHost } from '../../src/provider/engines/engine-host.ts'
import { openProvider, createKey, grantCredits } from '../../src/provider/operating/commands.ts'
import { startProvider } from '../../src/provider/program.ts'
import { call, testSettings } from '../provider/support/running-provider.ts'
import { withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'

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
