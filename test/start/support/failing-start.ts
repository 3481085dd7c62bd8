import { randomBytes } from 'node:crypto'
import postgres from 'postgres'
import { expect, onTestFinished } from 'vitest'
import { openLaptop, type Laptop } from '../../laptop/support/laptop.ts'
import type { TestProcess } from '../../platform/support/processes.ts'
import { freePort } from '../../provider/support/free-port.ts'
import { eventually } from '../../support/eventually.ts'
import { deliver, failed } from '../../support/webhooks.ts'
import { keyNamed } from './receiver-process.ts'

/** Settings of a start in production, without those of the database. */
export const production = {
  NODE_ENV: 'production',
  HOST: '127.0.0.1',
  GENERATION_API_URL: 'https://api.test',
  GENERATION_KEYS: JSON.stringify([keyNamed('first', 'whsec_first_secret')]),
  WEBHOOK_PUBLIC_URL: 'https://hooks.test/webhooks',
  PROVIDER_SECRET_KEY: randomBytes(32).toString('base64'),
}

/** A folder for one test, with free ports. */
export async function folder(): Promise<Laptop> {
  const laptop = await openLaptop()
  onTestFinished(laptop.remove)
  return laptop
}

const changed = (url: string, change: Partial<Pick<URL, 'password' | 'pathname'>>) =>
  Object.assign(new URL(url), change).href
export const waits = /"msg":"not ready, waiting for Postgres"/g
export const linesOf = (output: string) => output.split('\n').filter((line) => line.startsWith('mediadock: '))

type Cause = [name: string, urlOf: (url: string) => string | Promise<string>, line: RegExp]

/** Failures that cannot pass, with their line. */
export const fatal: [Cause, ...Cause[]] = [
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

/** A program that Postgres refuses for good ends with one line that names the cause, and no secret. */
export async function expectFatalStart(program: TestProcess, line: RegExp): Promise<void> {
  expect(await program.exit).toEqual({ code: 1, signal: null })
  expect(linesOf(program.output())).toEqual([expect.stringMatching(line)])
  expect(program.output()).not.toMatch(/Failed query|do \$|hush|undefined:undefined/)
  expect(program.output()).not.toMatch(/"stack"|stay unlogged/)
}

/** A start in production without a reachable Postgres waits for it, alive but not ready, until SIGTERM. */
export async function expectWaitingStart(env: Record<string, string>): Promise<void> {
  const laptop = await folder()
  const program = laptop.start(
    { ...production, DATABASE_URL: `postgres://u:hush@127.0.0.1:${await freePort()}/d`, DRAIN_SECONDS: '0', ...env },
    'all',
  )
  await eventually(() => program.output().match(waits)?.length === 2)
  for (const port of [laptop.ports.PORT, laptop.ports.INTERNAL_PORT, laptop.ports.PROVIDER_PORT]) {
    expect((await fetch(`http://127.0.0.1:${port}/healthz`)).status).toBe(200)
    expect((await fetch(`http://127.0.0.1:${port}/readyz`)).status).toBe(503)
  }
  const webhooks = `http://127.0.0.1:${laptop.ports.PORT}/webhooks`
  expect((await deliver(webhooks, failed().body, { secret: 'whsec_first_secret' })).status).toBe(503)
  expect(program.output()).toMatch(
    /"reason":"Postgres cannot be reached at 127\.0\.0\.1:\d+, connection refused \(ECONNREFUSED\)/,
  )
  expect(program.output()).not.toMatch(/hush|background round failed|"msg":"started"/)
  program.kill('SIGTERM')
  expect(await program.exit).toEqual({ code: 0, signal: null })
}
