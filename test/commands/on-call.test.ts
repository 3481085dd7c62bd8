import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import packageJson from '../../package.json' with { type: 'json' }
import { childEnv } from '../support/child-env.ts'
import { createTestDatabase, type TestDatabase, withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { json, startProviderStand, type ProviderStand } from '../support/provider-stand.ts'
import { liveKey, sandboxKey, startTestReceiver } from '../support/receiver.ts'
import { deliver, failed, headersFor } from '../support/webhooks.ts'
import { linesOf, mediadockHere } from './mediadock.ts'

let database: TestDatabase
let stand: ProviderStand

beforeAll(async () => {
  database = await createTestDatabase()
  stand = await startProviderStand()
})
afterAll(async () => {
  await stand.close()
  await database.drop()
})

const settings = () => ({ DATABASE_URL: database.url, GENERATION_API_URL: stand.url })
const run = (...args: string[]) => mediadockHere(settings(), ...args)

it('mediadock --version prints the version', async () => {
  expect(await run('--version')).toEqual({ code: 0, stdout: `${packageJson.version}\n`, stderr: '' })
})

it('mediadock keys lists the configured keys without secrets', async () => {
  await database.sql`insert into mediadock.key_uses (key_name, first_match_at, last_match_at, matches) values ('removed', now(), now(), 3)`
  const { code, stdout } = await run('keys')
  expect(code).toBe(0)
  expect(stdout).toMatch(/^live +live +in use +[0-9a-f]{8} +- +0 +0 +- +100 +-$/m)
  expect(stdout).toMatch(/^removed +- +removed +- +\d{4}-\S+ +3 /m)
  expect(stdout).not.toContain(liveKey.signing_secret)
  expect(stdout).not.toContain(liveKey.api_key)
})

describe('mediadock status', () => {
  const isSeen = (ago: string) => database.sql`
    insert into mediadock.minutes (minute, written_at, arrivals, landed)
    values (date_trunc('minute', now() - ${ago}::interval), now() - ${ago}::interval, '{}', 0)`

  it('exits with 1 while no receiver runs and prints since when', async () => {
    const never = await run('status')
    expect(never).toMatchObject({
      code: 1,
      stdout: expect.stringMatching(/^critical +No receiver is running: none has written/m),
    })
    await isSeen('10 minutes')
    const { code, stdout } = await run('status', '--json')
    expect(code).toBe(1)
    const [{ text }] = linesOf(stdout)[0].problems
    expect(text).toMatch(
      /^No receiver is running: the last one wrote to this database at \d{4}-\S+Z, 10 min ago\. Start one: /,
    )
    await isSeen('30 seconds')
  })

  it('prints the database without its password', async () => {
    const { host, pathname } = new URL(database.url)
    expect((await run('status')).stdout).toContain(`\nDatabase ${host}${pathname}\n0 arrivals`)
    expect(linesOf((await run('status', '--json')).stdout)).toMatchObject([{ database: `${host}${pathname}` }])
  })

  it('reports no silent reconciler before its first run is due', async () => {
    const { code, stdout } = await run('status')
    expect({ code, isSilent: stdout.includes('silent') }).toEqual({ code: 0, isSilent: false })
  })

  it('prints the problems and exits with 1 while one is critical', async () => {
    await database.sql`insert into mediadock.process_starts (started_at, host, pid, version) values (now() - interval '10 minutes', 'a', 1, '0.1.0')`
    const { code, stdout } = await run('status')
    expect(code).toBe(1)
    expect(stdout).toMatch(/^critical +The reconciler has not run/m)
    expect(stdout).toContain('0 parked. Requests: 0 overdue')
  })

  it('exits with 0 while no problem is critical', async () => {
    await database.sql`insert into mediadock.reconcile_runs (started_at, ended_at, trigger, outcome) values (now(), now(), 'cron', 'idle')`
    const { code, stdout } = await run('status', '--json')
    expect(code).toBe(0)
    const [status] = linesOf(stdout)
    expect(status).toMatchObject({ pending: 0, parked: 0, overdue: 0, recent: { arrivals: 0 } })
    expect(status.problems.filter(({ severity }: { severity: string }) => severity === 'critical')).toEqual([])
  })

  it('names the trigger that refused parked results', async () => {
    const its = await withTestDatabase()
    await its.sql.unsafe(`create schema shop;
      create function shop.take_order() returns trigger language plpgsql as 'begin return null; end';
      create trigger take_order after insert on mediadock.requests for each row execute function shop.take_order()`)
    const id = randomUUID()
    await its.sql`insert into mediadock.deliveries (id, webhook_id, key_name, signed_at, received_at, headers, body, parked_reason)
      values (${id}, 'wh', 'live', now(), now(), '{}', '', 'landing_failed')`
    const refusal = 'landing_failed: no order (P0001), function shop.take_order()'
    await its.sql`insert into mediadock.attempts (delivery_id, attempted_at, outcome, detail) values (${id}, now(), 'parked', ${refusal})`
    const { stdout } = await mediadockHere({ ...settings(), DATABASE_URL: its.url }, 'status')
    expect(stdout).toContain('no order (P0001), function shop.take_order(), trigger take_order on mediadock.requests.')
  })

  it('prints how many results are incomplete and when they will be complete', async () => {
    expect((await run('status')).stdout).toContain('All landed results are complete.')
    const requestId = randomUUID()
    await database.sql`insert into mediadock.requests (request_id, key_name, status, source, landed_at, next_poll_at)
      values (${requestId}, 'live', 'FAILED', 'webhook', now(), now() + interval '1 minute')`
    expect((await run('status')).stdout).toMatch(
      / 1 result is incomplete\. The keys have calls to complete all by \d{1,2} \w{3,4} \d{4}, \d\d:\d\d at the/,
    )
    await database.sql`delete from mediadock.requests where request_id = ${requestId}`
  })
})

it('mediadock verify accepts deliveries that were refused for a missing secret', async () => {
  const { requestId, body } = failed()
  const headers = headersFor(body, { webhookId: 'wh_late', secret: sandboxKey.signing_secret })
  await database.sql`insert into mediadock.quarantine (arrived_at, reason, webhook_id, headers, body)
    values (now(), 'no_matching_secret', 'wh_late', ${database.sql.json(headers)}, ${body})`
  expect(await run('verify', '--reason', 'malformed_header')).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('verified 0 again'),
  })
  expect(await run('verify')).toEqual({
    code: 0,
    stdout: 'verified 1 again: 1 accepted, 0 refused as before\n',
    stderr: '',
  })
  expect(await database.sql`select request_id, key_name from mediadock.deliveries`).toEqual([
    { request_id: requestId, key_name: 'sandbox' },
  ])
  expect(await database.sql`select via, action from mediadock.audit order by id desc limit 1`).toEqual([
    { via: 'cli', action: 'verify_quarantine' },
  ])
})

it('mediadock tail prints arrivals as they are logged, until it is interrupted', async () => {
  const cli = path.resolve(import.meta.dirname, '../../src/cli.ts')
  const child = spawn(process.execPath, [cli, 'tail', '--outcome', 'refused', '--json'], {
    env: { ...childEnv, DATABASE_URL: database.url },
  })
  const printed = Promise.withResolvers<void>()
  let output = ''
  child.stdout.on('data', (chunk: Buffer) => {
    output += chunk.toString()
    printed.resolve()
  })
  const logging = setInterval(() => {
    void database.sql`insert into mediadock.arrivals (arrived_at, outcome, reason, status, webhook_id, ack_ms) values
      (now(), 'accepted', null, 200, 'kept', 1), (now(), 'refused', 'too_old', 401, 'old', 1)`.execute()
  }, 100)
  await printed.promise
  clearInterval(logging)
  child.kill('SIGINT')
  await once(child, 'exit')
  expect(child.exitCode).toBe(0)
  const arrivals = linesOf(output)
  expect(new Set(arrivals.map(({ webhook_id }) => webhook_id))).toEqual(new Set(['old']))
  expect(new Set(arrivals.map(({ id }) => id)).size).toBe(arrivals.length)
})

describe('mediadock config check', () => {
  it('checks each key at the provider and prints the effect', async () => {
    const account = { account_id: 'acc_1', balance: { credits: 5 }, usage_30d: { requests: 0, credits_spent: 0 } }
    const refusal = { error: { type: 'invalid_request_error', code: 'invalid_api_key', message: 'no' } }
    stand.answer((_id, req, res) =>
      req.headers.authorization === `Bearer ${liveKey.api_key}` ? json(res, 200, account) : json(res, 401, refusal),
    )
    const { code, stdout, stderr } = await run('config', 'check')
    expect({ code, stderr }).toEqual({ code: 1, stderr: '' })
    expect(stdout).toMatch(/^database +connected, schema is up to date/m)
    expect(stdout).toMatch(/^key live \(live\) +accepted by the provider/m)
    expect(stdout).toMatch(/^key sandbox \(sandbox\) +the provider answered 401 +.*configure a valid key/m)
    expect(stand.calls.map(({ path: asked }) => asked)).toEqual(['/v1/account', '/v1/account'])
    // A receiver that runs with a key of this name goes on using it: the settings of the command may be wrong.
    const budgets = database.sql`select key_name, refusals, blocked_until from mediadock.call_budgets order by key_name`
    expect(await budgets).toEqual([
      { key_name: 'live', refusals: 0, blocked_until: null },
      { key_name: 'sandbox', refusals: 0, blocked_until: null },
    ])
  })

  it('tells a key without api_key from a retired one', async () => {
    const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-sources-'))
    onTestFinished(() => fs.rm(folder, { recursive: true }))
    const file = path.join(folder, 'sources.json')
    const secret = (byte: number) => `whsec_${Buffer.alloc(32, byte).toString('base64')}`
    const keys = [
      { name: 'engine', signing_secret: secret(1) },
      { name: 'old', signing_secret: secret(2), retired: true },
    ]
    await fs.writeFile(file, JSON.stringify([{ name: 'engines', kind: 'standard-webhooks', keys }]))
    const { stdout } = await mediadockHere({ ...settings(), SOURCES_FILE: file }, 'config', 'check')
    expect(stdout).toMatch(/^key engine \(live\) +without api_key /m)
    expect(stdout).toMatch(/^key old \(live\) +retired /m)
  })

  it('warns once if some requests were not tracked', async () => {
    const { url, sql } = await withTestDatabase()
    const tracked = async () =>
      (await mediadockHere({ DATABASE_URL: url }, 'config', 'check')).stdout.match(/^tracking .*$/gm)
    await sql`insert into mediadock.requests (request_id, key_name) values (gen_random_uuid(), 'live')`
    expect(await tracked()).toBeNull()
    const receiver = await startTestReceiver({ databaseUrl: url })
    onTestFinished(receiver.stop)
    for (const { requestId, body } of [failed(), failed()]) {
      expect((await deliver(receiver.webhookUrl, body)).status).toBe(200)
      await eventually(
        async () => (await sql`select from mediadock.results where request_id = ${requestId}`).length > 0,
      )
    }
    expect(await tracked()).toEqual([
      expect.stringMatching(/2 of the latest 3 requests were not tracked .* polling finds only tracked requests/),
    ])
  })

  it('exits with 78 and names an invalid setting', async () => {
    const { code, stderr } = await mediadockHere({ DATABASE_URL: database.url, PORT: 'x' }, 'config', 'check')
    expect(code).toBe(78)
    expect(stderr).toContain('PORT')
  })
})
