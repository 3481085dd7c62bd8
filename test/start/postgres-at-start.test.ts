import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import fs from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import postgres from 'postgres'
import { describe, expect, it, onTestFinished } from 'vitest'
import { long } from '../chaos/length.ts'
import { mediadockHere } from '../commands/mediadock.ts'
import { openLaptop, type Laptop } from '../laptop/support/laptop.ts'
import { startPostgresProxy } from '../platform/support/postgres-proxy.ts'
import { startProcess } from '../platform/support/processes.ts'
import { freePort } from '../provider/support/free-port.ts'
import { childEnv } from '../support/child-env.ts'
import { preferredServer, withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { describeOnPackaged, withPackagedPostgres } from '../support/own-packaged-postgres.ts'
import { deliver, failed } from '../support/webhooks.ts'
import { keyNamed } from './support/receiver-process.ts'

const production = {
  NODE_ENV: 'production',
  HOST: '127.0.0.1',
  GENERATION_API_URL: 'https://api.test',
  GENERATION_KEYS: JSON.stringify([keyNamed('first', 'whsec_first_secret')]),
  WEBHOOK_PUBLIC_URL: 'https://hooks.test/webhooks',
  PROVIDER_SECRET_KEY: randomBytes(32).toString('base64'),
}

async function folder(): Promise<Laptop> {
  const laptop = await openLaptop()
  onTestFinished(laptop.remove)
  return laptop
}

const changed = (url: string, change: Partial<Pick<URL, 'password' | 'username' | 'pathname' | 'port' | 'hostname'>>) =>
  Object.assign(new URL(url), change).href
const waits = /"msg":"not ready, waiting for Postgres"/g
const linesOf = (output: string) => output.split('\n').filter((line) => line.startsWith('mediadock: '))

/** Failures that cannot pass, with their line. */
const fatal: [string, (url: string) => string | Promise<string>, RegExp][] = [
  [
    'a wrong password',
    (url) => changed(url, { password: 'hush' }),
    /^mediadock: Postgres says: password authentication failed for user "\w+" \(28P01\): correct the user or the password in the database URL$/,
  ],
  [
    'a missing database',
    (url) => changed(url, { pathname: '/nowhere' }),
    /^mediadock: Postgres says: database "nowhere" does not exist \(3D000\): create it, or correct the database URL$/,
  ],
  [
    'a schema from before the first release',
    async (url) => {
      const sql = postgres(url, { max: 1 })
      for (const schema of ['mediadock', 'provider'])
        await sql.unsafe(`update ${schema}.migrations set hash = 'before'`)
      await sql.end()
      return url
    },
    /^mediadock: the schema \w+ comes from before the first release and cannot be upgraded: delete it with all its rows \(drop schema \w+ cascade\), or use another database; on a laptop delete .data\/$/,
  ],
]

describe.each(['true', 'false'])('in production with MIGRATE_ON_START=%s', (MIGRATE_ON_START) => {
  // The short form shows one cause with each setting and program. The tests of migrate below show all causes.
  const causes = fatal.filter((_, at) => long || at === (MIGRATE_ON_START === 'true' ? 0 : 2))
  it.each(causes)('%s ends the start at once, in one line with its cause', async (_cause, urlOf, line) => {
    const database = await withTestDatabase(preferredServer)
    for (const what of long ? ['receiver', 'provider'] : [MIGRATE_ON_START === 'true' ? 'receiver' : 'provider']) {
      const program = (await folder()).start(
        { ...production, DATABASE_URL: await urlOf(database.url), MIGRATE_ON_START },
        what,
      )
      expect(await program.exit).toEqual({ code: 1, signal: null })
      expect(linesOf(program.output())).toEqual([expect.stringMatching(line)])
      expect(program.output()).not.toMatch(/Failed query|do \$|hush|undefined:undefined/)
      expect(program.output()).not.toMatch(/"stack"|stay unlogged/)
    }
  })

  it.runIf(long || MIGRATE_ON_START === 'true')(
    'an unreachable Postgres is waited for, alive but not ready, and logged; SIGTERM ends the wait with exit 0',
    async () => {
      const laptop = await folder()
      const program = laptop.start(
        {
          ...production,
          DATABASE_URL: `postgres://u:hush@127.0.0.1:${await freePort()}/d`,
          MIGRATE_ON_START,
          DRAIN_SECONDS: '0',
        },
        'all',
      )
      await eventually(() => program.output().match(waits)?.length === 2)
      for (const port of [laptop.ports.PORT, laptop.ports.INTERNAL_PORT, laptop.ports.PROVIDER_PORT]) {
        expect((await fetch(`http://127.0.0.1:${port}/healthz`)).status).toBe(200)
        expect((await fetch(`http://127.0.0.1:${port}/readyz`)).status).toBe(503)
      }
      expect(
        (
          await deliver(`http://127.0.0.1:${laptop.ports.PORT}/webhooks`, failed().body, {
            secret: 'whsec_first_secret',
          })
        ).status,
      ).toBe(503)
      expect(program.output()).toMatch(
        /"reason":"Postgres cannot be reached at 127\.0\.0\.1:\d+, no server accepts connections there \(ECONNREFUSED\)/,
      )
      expect(program.output()).not.toMatch(/hush|background round failed|"msg":"started"/)
      program.kill('SIGTERM')
      expect(await program.exit).toEqual({ code: 0, signal: null })
    },
  )

  it('a missing schema is created, or waited for', async () => {
    const database = await withTestDatabase(preferredServer)
    await database.sql.unsafe('drop schema mediadock cascade')
    const laptop = await folder()
    const program = laptop.start({ ...production, DATABASE_URL: database.url, MIGRATE_ON_START }, 'receiver')
    const ready = async () => (await fetch(`http://127.0.0.1:${laptop.ports.PORT}/readyz`)).status
    if (MIGRATE_ON_START === 'false') {
      await program.says(
        /"reason":"the schema mediadock is missing or older than this version, and MIGRATE_ON_START is false: run \\"mediadock migrate receiver\\""/,
      )
      expect(await ready()).toBe(503)
      expect((await mediadockHere({ DATABASE_URL: database.url }, 'migrate', 'receiver')).code).toBe(0)
    }
    await program.says(/"msg":"started"/)
    await eventually(async () => (await ready()) === 200)
  })
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

  it.runIf(long)('with an untrusted certificate ends the start at once, in one line', async () => {
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
        /^mediadock: the certificate of Postgres.* is refused, it is self-signed: correct the certificate, sslrootcert or sslmode$/,
      ),
    ])
  })

  it.runIf(long)('without free connections is waited for', async () => {
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
    'mediadock: Postgres cannot be reached at 127.0.0.1:9, no server accepts connections there (ECONNREFUSED): check that it is running, and the host and port of the database URL',
  ])
})

describe('mediadock migrate', () => {
  it.each(fatal)('with %s ends at once with that line', async (_what, urlOf, line) => {
    const database = await withTestDatabase('packaged')
    const { code, stderr } = await mediadockHere({ DATABASE_URL: await urlOf(database.url) }, 'migrate')
    expect({ code, stderr: stderr.trimEnd() }).toEqual({ code: 1, stderr: expect.stringMatching(line) })
  })

  it('waits for an unreachable Postgres, and reports it', async () => {
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
})
