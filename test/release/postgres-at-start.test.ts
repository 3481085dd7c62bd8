import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import postgres from 'postgres'
import { describe, expect, it, onTestFinished } from 'vitest'
import { mediadockHere } from '../commands/mediadock.ts'
import { startPostgresProxy } from '../platform/support/postgres-proxy.ts'
import { startProcess } from '../platform/support/processes.ts'
import {
  expectFatalStart,
  expectWaitingStart,
  fatal,
  folder,
  linesOf,
  production,
  waits,
} from '../start/support/failing-start.ts'
import { childEnv } from '../support/child-env.ts'
import { preferredServer, withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { describeOnPackaged, withPackagedPostgres } from '../support/own-packaged-postgres.ts'
import { deliver, failed } from '../support/webhooks.ts'

describe.each(['true', 'false'])('in production with MIGRATE_ON_START=%s', (MIGRATE_ON_START) => {
  it.each(fatal)('%s ends the start at once, in one line with its cause', async (_cause, urlOf, line) => {
    const { url } = await withTestDatabase(preferredServer)
    const env = { ...production, DATABASE_URL: await urlOf(url), MIGRATE_ON_START }
    for (const what of ['receiver', 'provider']) await expectFatalStart((await folder()).start(env, what), line)
  })

  it('an unreachable Postgres is waited for, alive but not ready, and logged; SIGTERM ends the wait with exit 0', () =>
    expectWaitingStart({ MIGRATE_ON_START }))
})

it('a missing schema is created with MIGRATE_ON_START=true', async () => {
  const database = await withTestDatabase(preferredServer)
  await database.sql.unsafe('drop schema mediadock cascade')
  const laptop = await folder()
  const env = { ...production, DATABASE_URL: database.url, MIGRATE_ON_START: 'true' }
  const program = laptop.start(env, 'receiver')
  await program.says(/"msg":"started"/)
  await eventually(async () => (await fetch(`http://127.0.0.1:${laptop.ports.PORT}/readyz`)).status === 200)
})

describeOnPackaged('a packaged server', () => {
  it('that starts later makes the waiting receiver ready without a restart', async () => {
    const server = await withPackagedPostgres()
    await server.stop()
    const laptop = await folder()
    const program = laptop.start({ ...production, DATABASE_URL: server.url }, 'receiver')
    await program.says(new RegExp(waits.source))
    await server.start()
    await program.says(/"msg":"started"/)
    await eventually(async () => (await fetch(`http://127.0.0.1:${laptop.ports.PORT}/readyz`)).status === 200)
    expect(
      (
        await deliver(`http://127.0.0.1:${laptop.ports.PORT}/webhooks`, failed().body, {
          secret: 'whsec_first_secret',
        })
      ).status,
    ).toBe(200)
  })

  it('with an untrusted certificate ends the start at once, in one line', async () => {
    const server = await withPackagedPostgres({
      settings: { ssl: 'on' },
      prepare: async (dataDir) => {
        const [crt, key] = [path.join(dataDir, 'server.crt'), path.join(dataDir, 'server.key')]
        await promisify(execFile)('openssl', [
          'req',
          '-new',
          '-x509',
          '-days',
          '2',
          '-nodes',
          '-subj',
          '/CN=localhost',
          '-out',
          crt,
          '-keyout',
          key,
        ])
        await fs.chmod(key, 0o600)
      },
    })
    const program = (await folder()).start(
      { ...production, DATABASE_URL: `${server.url}?sslmode=verify-full` },
      'receiver',
    )
    expect(await program.exit).toEqual({ code: 1, signal: null })
    expect(linesOf(program.output())).toEqual([
      expect.stringMatching(
        /^mediadock: the certificate of Postgres.* is refused, self-signed certificate: correct the certificate, sslrootcert or sslmode$/,
      ),
    ])
  })

  it('without free connections is waited for', async () => {
    const server = await withPackagedPostgres({
      settings: { max_connections: '5', superuser_reserved_connections: '0' },
    })
    const client = postgres(server.url, { max: 1 })
    await client.unsafe(`create role ordinary login superuser password 'x'`)
    await client.end()
    const held = postgres(server.url, { max: 5, onnotice: () => {} })
    onTestFinished(() => held.end({ timeout: 1 }))
    await Promise.all(Array.from({ length: 5 }, () => held`select pg_sleep(0.2)`))
    const program = (await folder()).start(
      { ...production, DATABASE_URL: server.url, DATABASE_POOL_SIZE: '3' },
      'receiver',
    )
    await program.says(/"reason":"Postgres says: [^"]*\(53300\)/)
    await held.end({ timeout: 1 })
    await program.says(/"msg":"started"/)
  })
})

it('on a laptop an unreachable Postgres ends the start at once, in one line', async () => {
  const program = (await folder()).start({ DATABASE_URL: 'postgres://u:hush@127.0.0.1:9/d' }, 'receiver')
  expect(await program.exit).toEqual({ code: 1, signal: null })
  expect(linesOf(program.output())).toEqual([
    'mediadock: Postgres cannot be reached at 127.0.0.1:9, connection refused (ECONNREFUSED): check that it is running, and the host and port of the database URL',
  ])
})

it('mediadock migrate waits for an unreachable Postgres, and reports it', async () => {
  const database = await withTestDatabase('packaged')
  const proxy = await startPostgresProxy(database.url)
  proxy.swallowAfter(0)
  const cli = path.resolve(import.meta.dirname, '../../src/cli.ts')
  const program = startProcess(process.execPath, [cli, 'migrate', 'receiver'], {
    env: { ...childEnv, DATABASE_URL: proxy.url },
  })
  await program.says(/^mediadock: waiting: Postgres cannot be reached.*no answer in time/m)
  proxy.passOn()
  expect(await program.exit).toEqual({ code: 0, signal: null })
  expect(program.output()).toMatch(/^receiver: up to date$/m)
})

it('a missing schema is waited for with MIGRATE_ON_START=false', async () => {
  const database = await withTestDatabase(preferredServer)
  await database.sql.unsafe('drop schema mediadock cascade')
  const laptop = await folder()
  const program = laptop.start({ ...production, DATABASE_URL: database.url, MIGRATE_ON_START: 'false' }, 'receiver')
  const ready = async () => (await fetch(`http://127.0.0.1:${laptop.ports.PORT}/readyz`)).status
  await program.says(
    /"reason":"the schema mediadock is missing or older than this version, and MIGRATE_ON_START is false: run \\"mediadock migrate receiver\\""/,
  )
  expect(await ready()).toBe(503)
  expect((await mediadockHere({ DATABASE_URL: database.url }, 'migrate', 'receiver')).code).toBe(0)
  await program.says(/"msg":"started"/)
  await eventually(async () => (await ready()) === 200)
})

it.each(fatal)('mediadock migrate with %s ends at once with that line', async (_what, urlOf, line) => {
  const database = await withTestDatabase(preferredServer)
  const { code, stderr } = await mediadockHere({ DATABASE_URL: await urlOf(database.url) }, 'migrate')
  expect({ code, stderr: stderr.trimEnd() }).toEqual({ code: 1, stderr: expect.stringMatching(line) })
})
