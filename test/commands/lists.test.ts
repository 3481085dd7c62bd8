import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { commands, usage } from '../../src/commands/index.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { linesOf, mediadock, mediadockHere } from './mediadock.ts'

let database: TestDatabase
const ids = { parked: randomUUID(), processed: randomUUID() }
const requests = { old: randomUUID(), landed: randomUUID() }

beforeAll(async () => {
  database = await createTestDatabase()
  const { sql } = database
  const now = new Date().toISOString()
  const hourAgo = new Date(Date.now() - 3_600_000).toISOString()
  const delivery = { key_name: 'live', headers: { host: 'x' }, body: Buffer.from('x') }
  await sql`insert into mediadock.deliveries ${sql([
    {
      ...delivery,
      id: ids.parked,
      webhook_id: 'w-parked',
      request_id: null,
      signed_at: hourAgo,
      received_at: hourAgo,
      parked_reason: 'not_json',
    },
    {
      ...delivery,
      id: ids.processed,
      webhook_id: 'w-processed',
      request_id: requests.landed,
      signed_at: now,
      received_at: now,
      parked_reason: null,
    },
  ])}`
  await sql`insert into mediadock.arrivals (arrived_at, outcome, reason, status, webhook_id, remote, ack_ms) values
    (${now}, 'refused', 'no_matching_secret', 401, ${'evil\u001b[2J\u009b2J'}, '192.0.2.1', 1.25), (${hourAgo}, 'accepted', null, 200, 'w-parked', '192.0.2.2', 3)`
  await sql`insert into mediadock.requests (request_id, status, model, key_name, tracked_at, landed_at) values
    (${requests.old}, 'IN_QUEUE', 'vela', 'live', ${hourAgo}, null), (${requests.landed}, 'FAILED', 'aurora-image', 'sandbox', ${now}, ${now})`
})
afterAll(() => database.drop())

const run = (...args: string[]) => mediadockHere({ DATABASE_URL: database.url }, ...args)

describe('mediadock deliveries', () => {
  it('prints a table, newest first', async () => {
    const { code, stdout, stderr } = await run('deliveries')
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    const [headings, first, second, ...more] = stdout.trimEnd().split('\n')
    expect(headings).toMatch(/^received +state +outcome +reason +key +request +id +webhook id$/)
    expect(first).toContain(ids.processed)
    expect(second).toMatch(/ parked +parked +not_json +live +- +/)
    expect(more).toEqual([])
  })

  it('prints one JSON line per item, and takes filters', async () => {
    const lines = async (...args: string[]) => linesOf((await run('deliveries', '--json', ...args)).stdout)
    const [all, parked, nothing, landed, newer] = await Promise.all([
      lines(),
      lines('--state', 'parked', '--until', '30m'),
      lines('--webhook-id', 'nothing'),
      lines('--request_id', requests.landed, '--limit', '1'),
      lines('--since', '30m'),
    ])
    expect(all).toMatchObject([
      { id: ids.processed, state: 'processed' },
      { id: ids.parked, state: 'parked', reason: 'not_json' },
    ])
    expect(parked).toMatchObject([{ id: ids.parked }])
    expect(nothing).toEqual([])
    expect(landed).toMatchObject([{ id: ids.processed }])
    expect(newer).toMatchObject([{ id: ids.processed }])
  })
})

describe('mediadock arrivals', () => {
  it('prints foreign text without control characters', async () => {
    const { code, stdout } = await run('arrivals', '--outcome', 'refused')
    expect(code).toBe(0)
    expect(stdout).toContain('evil·[2J·2J')
    expect(stdout).toMatch(/ 401 +refused +no_matching_secret +1\.3 +- +192\.0\.2\.1 /)
  })

  it('reads several pages for a large limit', async () => {
    await database.sql`insert into mediadock.arrivals (arrived_at, outcome, status, ack_ms, key_name) select now(), 'accepted', 200, 1, 'many' from generate_series(1, 450)`
    const items = linesOf((await run('arrivals', '--key-name', 'many', '--limit', '420', '--json')).stdout)
    expect(new Set(items.map(({ id }) => id)).size).toBe(420)
  })
})

describe('mediadock requests', () => {
  it('prints a table that marks overdue requests by STUCK_AFTER_SECONDS', async () => {
    const [table, overdue, others, patient] = await Promise.all([
      run('requests', '--status', 'FAILED'),
      run('requests', '--overdue', '--json'),
      run('requests', '--overdue', 'false', '--model', 'aurora-image', '--json'),
      mediadockHere({ DATABASE_URL: database.url, STUCK_AFTER_SECONDS: '7200' }, 'requests', '--overdue', '--json'),
    ])
    expect(table.stdout).toMatch(/FAILED +no +0 +sandbox +aurora-image/)
    expect(linesOf(overdue.stdout)).toMatchObject([{ id: requests.old }])
    expect(linesOf(others.stdout)).toMatchObject([{ id: requests.landed }])
    expect(patient.stdout).toBe('')
  })
})

describe('exit codes', () => {
  it.each([
    ['an unknown state', ['deliveries', '--state', 'done'], '--state: must be one of pending, processed, parked'],
    [
      'an invalid time',
      ['arrivals', '--since', 'yesterday'],
      '--since: must be a duration like 15m, or a time like 2026-01-31T03:00:00Z',
    ],
    ['an invalid id', ['deliveries', '--request-id', '1'], '--request-id: must be a uuid'],
    ['an invalid limit', ['requests', '--limit', 'x'], '--limit: must be a whole number above 0'],
    ['an unknown option', ['requests', '--colour', 'red'], "Unknown option '--colour'"],
    ['a word too many', ['requests', 'now'], "Unexpected argument 'now'"],
  ])('2 for %s, in one line', async (_what, args, message) => {
    const { code, stdout, stderr } = await run(...args)
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
    expect(stderr).toMatch(/^mediadock: [^\n]+\n$/)
    expect(stderr).toContain(message)
  })

  it('the process exits with 2 and one line', async () => {
    const { code, stdout, stderr } = await mediadock({}, 'requests', '--colour', 'red')
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
    expect(stderr).toMatch(/^mediadock: Unknown option '--colour'[^\n]*\n$/)
  })

  it('1 and one line if the database does not answer', async () => {
    const { code, stdout, stderr } = await mediadockHere({ DATABASE_URL: 'postgres://127.0.0.1:9/none' }, 'deliveries')
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
    expect(stderr).toMatch(/^mediadock: [^\n]*ECONNREFUSED[^\n]*\n$/)
  })

  it('78 if the settings are invalid', async () => {
    expect(await mediadockHere({ NODE_ENV: 'production' }, 'deliveries')).toMatchObject({
      code: 78,
      stderr: expect.stringContaining('DATABASE_URL is required'),
    })
    expect(await mediadockHere({ DATABASE_URL: database.url, STUCK_AFTER_SECONDS: 'x' }, 'requests')).toMatchObject({
      code: 78,
      stderr: expect.stringContaining('STUCK_AFTER_SECONDS'),
    })
  })

  it.each(['deliveries', 'requests', 'arrivals', 'replay', 'reconcile'])(
    '0 for %s --help, with examples',
    async (name) => {
      const { code, stdout } = await mediadockHere({}, name, '--help')
      expect(code).toBe(0)
      expect(stdout).toMatch(new RegExp(`^mediadock ${name} `))
      expect(stdout).toMatch(new RegExp(`^  mediadock ${name}`, 'm'))
      expect(usage()).toMatch(new RegExp(`^  ${name} `, 'm'))
    },
  )
})

it('--help of a command shows the options that it accepts', async () => {
  const shown = async (name: string) => {
    const { help, options } = (await commands[name]!.load()).command
    const form = /^[^]*?\n\n/.exec(help.trimStart())?.[0] ?? ''
    return {
      name,
      shown: [...new Set(form.match(/--[a-z][\w-]*/g))].sort(),
      options: Object.keys(options)
        .map((option) => `--${option}`)
        .sort(),
    }
  }
  for (const name of Object.keys(commands)) {
    const command = await shown(name)
    // Their help refers to another command's filters.
    if (name === 'replay' || name === 'tail') expect(command.options).toEqual(expect.arrayContaining(command.shown))
    else expect(command.shown, name).toEqual(command.options)
  }
})
