import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { identifyAll } from '../../src/provider/auth.ts'
import { call, startTestProvider, type TestProvider } from './support/running-provider.ts'
import { startProvider } from '../../src/provider/program.ts'
import { createLogger } from '../../src/runtime/logger.ts'

let provider: TestProvider
beforeAll(async () => {
  provider = await startTestProvider({ ratePerKey: 5, ratePerAccount: 8 })
})
afterAll(() => provider.stop())

const rateHeaders = (headers: Headers) => [headers.get('ratelimit-limit'), headers.get('ratelimit-remaining'), Number(headers.get('ratelimit-reset'))]

describe('rate limits', () => {
  it('count down in the headers of every answer under /v1, errors too, then answer 429 with Retry-After', async () => {
    const { api_key: key } = await provider.createKey()
    const paths = ['/v1/account', '/v1/nothing', '/v1/models/no-such-model', '/v1/models', '/v1/account']
    for (const [index, path] of paths.entries()) {
      const [limit, remaining, reset] = rateHeaders((await provider.call('GET', path, { key })).headers)
      expect([limit, remaining]).toEqual(['5', String(4 - index)])
      expect(reset).toBeGreaterThan(55)
      expect(reset).toBeLessThanOrEqual(60)
    }
    const refused = await provider.call('GET', '/v1/account', { key })
    expect(refused).toMatchObject({ status: 429, body: { error: { type: 'invalid_request_error', code: 'rate_limit_exceeded' } } })
    expect(rateHeaders(refused.headers).slice(0, 2)).toEqual(['5', '0'])
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(55)
  })

  it('of an account hold over all its keys, and tell the window with the least left', async () => {
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

  it('that one key exceeds do not use up its account', async () => {
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
      const answers = await Promise.all(Array.from({ length: 12 }, (_, i) => call(urls[i % 2] ?? '', 'GET', '/v1/account', { key })))
      expect(answers.filter(({ status }) => status === 200)).toHaveLength(5)
    } finally {
      await second.stop(1000)
    }
  })

  it('give each of many requests at the same moment a number of its own', async () => {
    const one = (await provider.createKey({ account: 'batched' })).api_key
    const two = (await provider.createKey({ account: 'batched' })).api_key
    const now = new Date('2026-01-01T00:00:00Z')
    const limits = { perKey: 3, perAccount: 5 }
    const identified = await identifyAll(provider.deps.db, [one, two, 'service_test_unknown', one, two, one, one, two, two], limits, now)
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

  it('begin anew after a minute', async () => {
    const { api_key: key } = await provider.createKey()
    const limits = { perKey: 2, perAccount: 10 }
    const start = Date.parse('2026-01-01T00:00:00Z')
    const at = async (seconds: number) => (await identifyAll(provider.deps.db, [key], limits, new Date(start + seconds * 1000)))[0]?.rate
    expect(await at(0)).toEqual({ limit: 2, remaining: 1, resetSeconds: 60, exceeded: false })
    expect(await at(30)).toEqual({ limit: 2, remaining: 0, resetSeconds: 30, exceeded: false })
    expect(await at(59.5)).toEqual({ limit: 2, remaining: 0, resetSeconds: 1, exceeded: true })
    expect(await at(60)).toEqual({ limit: 2, remaining: 1, resetSeconds: 60, exceeded: false })
  })
})
