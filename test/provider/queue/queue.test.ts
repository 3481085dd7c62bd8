import { randomUUID } from 'node:crypto'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { checkLedger } from '../../../src/provider/accounts/ledger.ts'
import { readResult } from '../../../src/provider/api/results.ts'
import { createKey, grantCredits, openProvider } from '../../../src/provider/operating/commands.ts'
import {
  cancelRequest,
  claimRequests,
  finishRequest,
  recordProgress,
  giveRequestBack,
} from '../../../src/provider/queue/requests.ts'
import { createStatusReader, readStatuses } from '../../../src/provider/queue/status-reader.ts'
import { writeSubmission } from '../../../src/provider/submit/submit-statement.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { moment } from '../support/time.ts'

let database: TestDatabase
let provider: ReturnType<typeof openProvider>
const keys = new Map<string, string>()

beforeEach(async () => {
  database = await createTestDatabase()
  provider = openProvider({ databaseUrl: database.url, secretKey: Buffer.alloc(32) })
  keys.clear()
})
afterEach(async () => {
  expect(await checkLedger(provider.deps.db)).toMatchObject({ ok: true, problems: [] })
  await provider.close()
  await database.drop()
})

const start = Date.parse('2026-01-01T00:00:00Z')
const at = (seconds: number) => new Date(start + seconds * 1000)
const random = () => 0.5

async function enqueue(account: string, count = 1, environment: 'live' | 'sandbox' = 'live'): Promise<string[]> {
  const { deps } = provider
  if (!keys.has(account)) {
    keys.set(account, (await createKey(deps, { account, name: account, environment: 'live' })).id)
    await grantCredits(deps, { account, credits: 100_000 })
  }
  const ids: string[] = []
  for (let i = 0; i < count; i += 1) {
    const requestId = randomUUID()
    const common = { accountId: account, keyId: keys.get(account) ?? '', environment, model: 'aurora-image' }
    const engine = { name: 'local-image', type: 'image', settings: {} } as const
    const what = { input: { prompt: 'x' }, engine, cost: '4' }
    const rest = { ...what, webhookUrl: undefined, faults: null, idempotency: undefined, completed: undefined }
    await writeSubmission(deps.db, { requestId, ...common, ...rest }, moment(at(0)))
    ids.push(requestId)
  }
  return ids
}

const claim = (limit: number, seconds = 0) =>
  claimRequests(provider.deps.db, {
    environment: 'live',
    limit,
    leaseSeconds: 20,
    now: moment(at(seconds)),
  })

/** One after the other, as one worker would take them. */
async function serve(count: number): Promise<string[]> {
  const served: string[] = []
  for (let i = 0; i < count; i += 1) for (const { id } of await claim(1)) served.push(id)
  return served
}

const caller = (accountId: string) => ({
  keyId: '',
  accountId,
  environment: 'live' as const,
  scopes: [],
  faults: null,
  activations: {},
})
const question = (accountId: string, requestId: string) => ({
  requestId,
  accountId,
  environment: 'live' as const,
  withLogs: false,
})
const position = async (account: string, requestId: string) => {
  const [status] = await readStatuses(provider.deps.db, new Map(), [question(account, requestId)])
  return status?.queue_position ?? null
}

describe('the queue', () => {
  it('serves one account in the order of its submits', async () => {
    const ids = await enqueue('a', 10)
    expect(await serve(10)).toEqual(ids)
  })

  it("serves another account's one job next, however many one has waiting", async () => {
    const many = await enqueue('a', 100)
    expect(await serve(3)).toEqual(many.slice(0, 3))
    const [single = ''] = await enqueue('b')
    expect(await position('b', single)).toBe(1)
    expect(await serve(3)).toEqual([many[3], single, many[4]])
  })

  it('alternates between accounts that all have many', async () => {
    const a = await enqueue('a', 6)
    const b = await enqueue('b', 3)
    const c = await enqueue('c', 3)
    expect(await serve(9)).toEqual([a[0], b[0], c[0], a[1], b[1], c[1], a[2], b[2], c[2]])
  })

  it('starts with equal turns after it was empty', async () => {
    await enqueue('a', 50)
    await serve(50)
    const b = await enqueue('b', 2)
    const a = await enqueue('a', 2)
    expect(await serve(4)).toEqual([b[0], a[0], b[1], a[1]])
  })

  it("does not delay an account's live requests because of its sandbox requests", async () => {
    const b = await enqueue('b', 5)
    await enqueue('a', 40, 'sandbox')
    const [a = ''] = await enqueue('a')
    expect(await position('a', a)).toBe(1)
    expect(await serve(3)).toEqual([b[0], a, b[1]])
  })

  it('does not penalise an account for a mass cancel', async () => {
    const waiting = await enqueue('a', 30)
    await enqueue('b', 3)
    for (const id of waiting) await cancelRequest(provider.deps.db, id, true)
    const [next = ''] = await enqueue('a')
    expect(await position('a', next)).toBeLessThanOrEqual(1)
  })

  it('does not serve two requests in a row of an account that canceled earlier ones', async () => {
    await enqueue('b', 40)
    let [oldest = '', ...waiting] = await enqueue('a', 6)
    for (let round = 0; round < 15; round += 1) {
      await cancelRequest(provider.deps.db, oldest, true)
      const [next = ''] = await enqueue('a')
      waiting.push(next)
      ;[oldest = '', ...waiting] = waiting
    }
    const served = await serve(46)
    const places = [oldest, ...waiting].map((id) => served.indexOf(id)).toSorted((a, b) => a - b)
    expect(places.filter((place, at) => place === (places[at - 1] ?? -2) + 1)).toEqual([])
  })

  it('reports positions in the order of service', async () => {
    const a = await enqueue('a', 7)
    const b = await enqueue('b', 4)
    const c = await enqueue('c', 1)
    await cancelRequest(provider.deps.db, a[2] ?? '', true)
    const positions = new Map<string, number>()
    for (const [account, ids] of [
      ['a', a],
      ['b', b],
      ['c', c],
    ] as const) {
      for (const id of ids) {
        const where = await position(account, id)
        if (where !== null) positions.set(id, where)
      }
    }
    // Read together they are the same.
    const all = [...positions.keys()].map((id) => question(b.includes(id) ? 'b' : c.includes(id) ? 'c' : 'a', id))
    const together = await readStatuses(provider.deps.db, new Map(), [question('b', a[0] ?? ''), ...all])
    expect(together.map((status) => status?.queue_position)).toEqual([undefined, ...positions.values()])
    const served = await serve(11)
    expect(served.map((id) => positions.get(id))).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
  })

  it('gives each request to one of many claimants', async () => {
    const ids = await enqueue('a', 40)
    const claimed = await Promise.all(Array.from({ length: 10 }, () => claim(5)))
    expect(
      claimed
        .flat()
        .map(({ id }) => id)
        .toSorted(),
    ).toEqual(ids.toSorted())
  })
})

describe('a lease', () => {
  it('protects a running request until it expires, then another worker takes it with a new attempt', async () => {
    await enqueue('a')
    const [first] = await claim(1)
    expect(await claim(1, 19)).toEqual([])
    const [second] = await claim(1, 20)
    expect(second).toMatchObject({ id: first?.id, attempts: 2 })
  })

  it('that was renewed is not taken over', async () => {
    await enqueue('a')
    const [running] = await claim(1)
    if (running === undefined) throw new Error('nothing claimed')
    expect(
      await recordProgress(provider.deps.db, running, {
        progress: 10,
        logLines: ['begun'],
        leaseSeconds: 20,
        now: moment(at(20)),
      }),
    ).toBe(true)
    expect(await claim(1, 30)).toEqual([])
    expect(await claim(1, 40)).toHaveLength(1)
  })

  it('that was lost cannot end the request', async () => {
    await enqueue('a')
    const [slow] = await claim(1)
    const [quick] = await claim(1, 20)
    if (slow === undefined || quick === undefined) throw new Error('nothing claimed')
    const output = { images: [{ url: 'http://127.0.0.1/x.png', width: 1, height: 1 }] }
    expect(
      await recordProgress(provider.deps.db, slow, {
        progress: 99,
        logLines: [],
        leaseSeconds: 20,
        now: moment(at(70)),
      }),
    ).toBe(false)
    expect(
      await finishRequest(provider.deps.db, slow, { kind: 'completed', output }, { now: moment(at(21)), random }),
    ).toBe(false)
    expect(
      await finishRequest(
        provider.deps.db,
        quick,
        { kind: 'failed', error: { code: 'GENERATION_FAILED', message: 'm' } },
        { now: moment(at(22)), random },
      ),
    ).toBe(true)
    const { db } = provider.deps
    const { body } = await readResult({ db, statusReader: createStatusReader(db) }, caller('a'), {
      requestId: slow.id,
      withLogs: false,
    })
    expect(body).toEqual({
      request_id: slow.id,
      status: 'FAILED',
      model: 'aurora-image',
      error: { code: 'GENERATION_FAILED', message: 'm' },
      cost: 0,
      created_at: at(0).toISOString(),
      completed_at: at(22).toISOString(),
    })
  })

  it('that a stopping process releases is free at once and costs no attempt', async () => {
    await enqueue('a')
    const [running] = await claim(1)
    if (running === undefined) throw new Error('nothing claimed')
    await giveRequestBack(provider.deps.db, running, moment(at(1)))
    expect(await claim(1, 1)).toMatchObject([{ id: running.id, attempts: 1 }])
  })
})

describe('an end', () => {
  it('happens once with concurrent tries', async () => {
    await enqueue('a')
    const [running] = await claim(1)
    if (running === undefined) throw new Error('nothing claimed')
    const { db } = provider.deps
    const output = { audio: { url: 'http://127.0.0.1/x.wav' } }
    const outcomes = await Promise.all([
      finishRequest(db, running, { kind: 'completed', output }, { now: moment(at(1)), random }),
      finishRequest(
        db,
        running,
        { kind: 'failed', error: { code: 'GENERATION_FAILED', message: 'm' } },
        { now: moment(at(1)), random },
      ),
      cancelRequest(db, running.id, false),
    ])
    expect(outcomes.filter(Boolean)).toHaveLength(1)
    const ends =
      await database.sql`select from provider.ledger_entries where request_id = ${running.id} and book = 'reserved' and kind <> 'reserve'`
    expect(ends).toHaveLength(1)
  })

  it('by cancel refunds a running request, and the API may only cancel what is queued', async () => {
    const [id = ''] = await enqueue('a')
    await claim(1)
    expect(await cancelRequest(provider.deps.db, id, true)).toBe(false)
    expect(await cancelRequest(provider.deps.db, id, false)).toBe(true)
    expect(await cancelRequest(provider.deps.db, id, false)).toBe(false)
    const [row] = await database.sql`select available from provider.accounts where id = 'a'`
    expect(Number(row?.['available'])).toBe(100_000)
  })
})
