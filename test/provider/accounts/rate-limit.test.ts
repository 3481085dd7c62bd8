import fc from 'fast-check'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { createLogger } from '../../../src/platform/logger.ts'
import { timeOf } from '../../../src/platform/postgres/time.ts'
import { createIdentify, identifyAll } from '../../../src/provider/accounts/identify.ts'
import { createKey, openProvider } from '../../../src/provider/operating/commands.ts'
import { startProvider } from '../../../src/provider/program.ts'
import { createTestDatabase, type TestDatabase, usualServers, withTestDatabase } from '../../support/database.ts'
import { call, startTestProvider, type TestProvider } from '../support/running-provider.ts'
import { moment } from '../support/time.ts'

let provider: TestProvider
beforeAll(async () => {
  provider = await startTestProvider({ ratePerKey: 5, ratePerAccount: 8 })
})
afterAll(() => provider.stop())

const rateHeaders = (headers: Headers) => [
  headers.get('ratelimit-limit'),
  headers.get('ratelimit-remaining'),
  Number(headers.get('ratelimit-reset')),
]

describe('rate limits', () => {
  it('count down in the headers of every /v1 answer, errors included, then answer 429 with Retry-After', async () => {
    const { api_key: key } = await provider.createKey()
    const paths = ['/v1/account', '/v1/nothing', '/v1/models/no-such-model', '/v1/models', '/v1/account']
    for (const [index, path] of paths.entries()) {
      const [limit, remaining, reset] = rateHeaders((await provider.call('GET', path, { key })).headers)
      expect([limit, remaining]).toEqual(['5', String(4 - index)])
      expect(reset).toBeGreaterThan(55)
      expect(reset).toBeLessThanOrEqual(60)
    }
    const refused = await provider.call('GET', '/v1/account', { key })
    expect(refused).toMatchObject({
      status: 429,
      body: { error: { type: 'invalid_request_error', code: 'rate_limit_exceeded' } },
    })
    expect(rateHeaders(refused.headers).slice(0, 2)).toEqual(['5', '0'])
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(55)
  })

  it('of an account apply across its keys, and the headers show the window with the least left', async () => {
    const one = await provider.createKey({ account: 'shared' })
    const two = await provider.createKey({ account: 'shared', environment: 'live' })
    for (let i = 0; i < 4; i += 1) await provider.call('GET', '/v1/account', { key: one.api_key })
    for (const remaining of ['3', '2', '1', '0']) {
      const { headers } = await provider.call('GET', '/v1/account', { key: two.api_key })
      expect(headers.get('ratelimit-remaining')).toBe(remaining)
      expect(headers.get('ratelimit-limit')).toBe('8')
    }
    expect((await provider.call('GET', '/v1/account', { key: two.api_key })).status).toBe(429)
    expect((await provider.call('GET', '/v1/account', { key: one.api_key })).status).toBe(429)
  })

  it("exceeded by one key do not use up its account's", async () => {
    const greedy = await provider.createKey({ account: 'family' })
    const modest = await provider.createKey({ account: 'family' })
    for (let i = 0; i < 30; i += 1) await provider.call('GET', '/v1/account', { key: greedy.api_key })
    expect((await provider.call('GET', '/v1/account', { key: modest.api_key })).status).toBe(200)
  })

  it('hold across processes', async () => {
    const { api_key: key } = await provider.createKey()
    const second = await startProvider({ settings: { ...provider.settings, port: 0 }, logger: createLogger('silent') })
    try {
      const urls = [provider.url, second.urls['api'] ?? '']
      const answers = await Promise.all(
        Array.from({ length: 12 }, (_, i) => call(urls[i % 2] ?? '', 'GET', '/v1/account', { key })),
      )
      expect(answers.filter(({ status }) => status === 200)).toHaveLength(5)
    } finally {
      await second.stop(1000)
    }
  })

  it('count each concurrent request once', async () => {
    const one = (await provider.createKey({ account: 'batched' })).api_key
    const two = (await provider.createKey({ account: 'batched' })).api_key
    const now = new Date('2026-01-01T00:00:00Z')
    const limits = { perKey: 3, perAccount: 5 }
    const identified = await identifyAll(
      provider.deps.db,
      [one, two, 'service_test_unknown', one, two, one, one, two, two],
      limits,
      moment(now),
    )
    expect(identified.map((each) => each && [each.rate.limit, each.rate.remaining, each.rate.exceeded])).toEqual([
      [3, 2, false],
      [3, 2, false],
      null,
      [3, 1, false],
      [3, 1, false],
      [3, 0, false],
      [3, 0, true],
      [5, 0, true],
      [3, 0, true],
    ])
  })
})

describe.each(usualServers)('the windows, on the %s server', (server) => {
  const start = Date.parse('2026-01-01T00:00:00Z')
  let database: TestDatabase
  let open: ReturnType<typeof openProvider>
  let key: string
  beforeEach(async () => {
    database = await createTestDatabase(server)
    open = openProvider({ databaseUrl: database.url, secretKey: Buffer.alloc(32, 7) })
    key = (await createKey(open.deps, { account: 'a', name: 'k', environment: 'sandbox' })).api_key
  })
  afterEach(async () => {
    await open.close()
    await database.drop()
  })

  const ask = async (seconds: number, count: number, limits: { perKey: number; perAccount: number }, apiKey = key) => {
    const identified = await identifyAll(
      open.deps.db,
      Array<string>(count).fill(apiKey),
      limits,
      moment(new Date(start + Math.round(seconds * 1000))),
    )
    return identified.map((each) => each?.rate ?? expect.fail('the key is not known'))
  }
  const granted = (rates: readonly { exceeded: boolean }[]) => rates.filter(({ exceeded }) => !exceeded).length

  it("allow 120 calls of a key in any 60 s, not 239 around a minute's end", async () => {
    const limits = { perKey: 120, perAccount: 600 }
    expect(granted(await ask(0, 1, limits))).toBe(1)
    expect(granted(await ask(59, 119, limits))).toBe(119)
    expect(granted(await ask(60.7, 120, limits))).toBe(1)
    expect(granted(await ask(118.9, 120, limits))).toBe(0)
    expect(granted(await ask(119, 120, limits))).toBe(119)
  })

  it('allow 600 calls of an account in any 60 s', async () => {
    const limits = { perKey: 400, perAccount: 600 }
    const other = (await createKey(open.deps, { account: 'a', name: 'other', environment: 'live' })).api_key
    expect(granted(await ask(0, 1, limits))).toBe(1)
    expect(granted(await ask(59, 399, limits))).toBe(399)
    expect(granted(await ask(59.5, 250, limits, other))).toBe(200)
    expect(granted(await ask(60.7, 100, limits, other))).toBe(1)
    expect((await ask(60.8, 1, limits, other))[0]).toMatchObject({ limit: 600, remaining: 0, exceeded: true })
  })

  it('state after how many seconds one more call is possible, and then allow it', async () => {
    const limits = { perKey: 2, perAccount: 10 }
    const at = async (seconds: number) => (await ask(seconds, 1, limits))[0]
    expect(await at(0)).toEqual({ limit: 2, remaining: 1, resetSeconds: 60, exceeded: false })
    expect(await at(30)).toEqual({ limit: 2, remaining: 0, resetSeconds: 30, exceeded: false })
    expect(await at(59.5)).toEqual({ limit: 2, remaining: 0, resetSeconds: 1, exceeded: true })
    expect(await at(60)).toEqual({ limit: 2, remaining: 0, resetSeconds: 30, exceeded: false })
    expect(await at(75)).toEqual({ limit: 2, remaining: 0, resetSeconds: 15, exceeded: true })
    expect(await at(90)).toMatchObject({ remaining: 0, exceeded: false })
    expect(await at(300)).toEqual({ limit: 2, remaining: 1, resetSeconds: 60, exceeded: false })
  })

  it('never allow more than the limit in 60 s, and always one more after RateLimit-Reset', async () => {
    const limits = { perKey: 7, perAccount: 1000 }
    const steps = fc.array(
      fc.record({
        waitMs: fc.oneof(fc.integer({ min: 0, max: 900 }), fc.integer({ min: 0, max: 40_000 })),
        count: fc.integer({ min: 1, max: 9 }),
      }),
      { minLength: 1, maxLength: 12 },
    )
    let runs = 0
    const property = fc.asyncProperty(steps, async (sequence) => {
      const apiKey = (await createKey(open.deps, { account: `p${(runs += 1)}`, name: 'k', environment: 'sandbox' }))
        .api_key
      const passedAtMs: number[] = []
      let nowMs = 0
      for (const { waitMs, count } of sequence) {
        nowMs += waitMs
        const rates = await ask(nowMs / 1000, count, limits, apiKey)
        for (let i = 0; i < granted(rates); i += 1) passedAtMs.push(nowMs)
        const inWindow = passedAtMs.filter((ms) => ms > nowMs - 60_000).length
        expect(inWindow).toBeLessThanOrEqual(limits.perKey)
        const last = rates.at(-1) ?? expect.fail()
        // The calls of one second are counted until the last of them is a minute old.
        expect(last.remaining).toBeLessThanOrEqual(limits.perKey - inWindow)
        if (!last.exceeded) continue
        nowMs += last.resetSeconds * 1000
        expect(granted(await ask(nowMs / 1000, 1, limits, apiKey))).toBe(1)
        passedAtMs.push(nowMs)
      }
    })
    await fc.assert(property, { numRuns: 25 })
  })

  it('keep only the calls of the last minute, and recover after a clock was set back', async () => {
    const limits = { perKey: 100_000, perAccount: 100_000 }
    for (let seconds = 0; seconds < 70; seconds += 0.5) await ask(seconds, 1, limits)
    const [row] =
      await database.sql`select cardinality(at_ms) as entries, used from provider.rate_windows where id like 'key:%'`
    expect(row).toEqual({ entries: 60, used: 120 })
    expect(granted(await ask(-86_400, 3, { perKey: 3, perAccount: 10 }))).toBe(3)
  })
})

it('a key over its limit is refused from memory for a second, then by Postgres', async () => {
  const database = await withTestDatabase()
  const { deps, close } = openProvider({ databaseUrl: database.url, secretKey: Buffer.alloc(32, 7) })
  onTestFinished(close)
  const { api_key: key } = await createKey(deps, { account: 'a', name: 'k', environment: 'sandbox' })
  let now = new Date('2026-01-01T00:00:00Z')
  const clock = () => now
  const limits = { perKey: 1, perAccount: 10 }
  const identify = createIdentify({ db: deps.db, limits, clock, time: timeOf(clock) })
  expect((await identify(key))?.rate).toMatchObject({ exceeded: false })
  expect((await identify(key))?.rate).toMatchObject({ exceeded: true, resetSeconds: 60 })
  await database.sql.begin(async (sql) => {
    await sql`lock table provider.rate_windows, provider.api_keys in access exclusive mode`
    now = new Date(now.getTime() + 999)
    expect((await identify(key))?.rate).toMatchObject({ exceeded: true })
  })
  now = new Date(now.getTime() + 1)
  expect((await identify(key))?.rate).toMatchObject({ exceeded: true, resetSeconds: 59 })
  await database.sql`update provider.api_keys set revoked_at = now()`
  now = new Date(now.getTime() + 1000)
  expect(await identify(key)).toBeNull()
})
