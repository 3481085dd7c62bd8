import { once } from 'node:events'
import http from 'node:http'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { revokeKey } from '../../../src/provider/operating/commands.ts'
import { errorEnvelopeSchema } from '../../../src/wire/schemas.ts'
import { eventually } from '../../support/eventually.ts'
import { startTestProvider, type TestProvider } from '../support/running-provider.ts'

let provider: TestProvider
let key: Awaited<ReturnType<TestProvider['createKey']>>

beforeAll(async () => {
  provider = await startTestProvider()
  key = await provider.createKey()
})
afterAll(() => provider.stop())

const account = (headers: Record<string, string>) => provider.call('GET', '/v1/account', { headers })

describe('credentials', () => {
  it.each([
    ['Authorization: Bearer', () => ({ authorization: `Bearer ${key.api_key}` })],
    ['Authorization: Key', () => ({ authorization: `Key ${key.api_key}` })],
    ['X-Api-Key', () => ({ 'x-api-key': key.api_key })],
    ['two that agree', () => ({ authorization: `Key ${key.api_key}`, 'x-api-key': key.api_key })],
  ])('accepts %s', async (_name, headers) => {
    expect(await account(headers())).toMatchObject({ status: 200, body: { account_id: key.account } })
  })

  it.each([
    ['none', () => ({})],
    ['a wrong key', () => ({ authorization: `Bearer ${key.api_key}x` })],
    ['an unknown scheme', () => ({ authorization: `Basic ${key.api_key}` })],
    ['a key without its scheme', () => ({ authorization: key.api_key })],
    ['an empty X-Api-Key', () => ({ 'x-api-key': '' })],
    ['two that disagree', () => ({ authorization: `Bearer ${key.api_key}`, 'x-api-key': 'service_test_other' })],
    [
      'a malformed Authorization beside a good X-Api-Key',
      () => ({ authorization: 'Bearer', 'x-api-key': key.api_key }),
    ],
    ['a key of 10,000 characters', () => ({ 'x-api-key': 'x'.repeat(10_000) })],
  ])('refuses %s with 401 and no RateLimit headers', async (_name, headers) => {
    const answer = await account(headers())
    expect(answer).toMatchObject({
      status: 401,
      body: { error: { type: 'invalid_request_error', code: 'invalid_api_key' } },
    })
    expect([...answer.headers.keys()].filter((name) => name.startsWith('ratelimit'))).toEqual([])
  })

  it('refuses two different Authorization headers, and accepts two equal ones', async () => {
    const both = async (first: string, second: string) => {
      const { hostname, port } = new URL(provider.url)
      const headers = [
        'host',
        `${hostname}:${port}`,
        'connection',
        'close',
        'authorization',
        first,
        'Authorization',
        second,
      ]
      const [answer] = await once(http.get({ hostname, port, path: '/v1/account', headers }), 'response')
      answer.resume()
      return answer.statusCode
    }
    const good = `Bearer ${key.api_key}`
    expect(await both(good, good)).toBe(200)
    expect(await both(good, 'Bearer service_test_other')).toBe(401)
    expect(await both('Bearer service_test_other', good)).toBe(401)
  })

  it('refuses a revoked key at the next request', async () => {
    const revoked = await provider.createKey()
    expect((await provider.call('GET', '/v1/account', { key: revoked.api_key })).status).toBe(200)
    await revokeKey(provider.deps, revoked.id)
    expect((await provider.call('GET', '/v1/account', { key: revoked.api_key })).status).toBe(401)
  })

  it('has the prefix of its environment', async () => {
    expect(key.api_key).toMatch(/^service_test_[\w-]{43}$/)
    expect((await provider.createKey({ environment: 'live' })).api_key).toMatch(/^service_live_[\w-]{43}$/)
  })

  it('stores neither the key nor the signing secret in the clear', async () => {
    const [row] = await provider.database
      .sql`select row_to_json(k)::text as text, signing_secret from provider.api_keys k where id = ${key.id}`
    expect(row?.['text']).not.toContain(key.api_key)
    expect(row?.['text']).not.toContain(Buffer.from(key.signing_secret).toString('hex'))
  })
})

describe('scopes', () => {
  it('lets a key without generate do everything but submit', async () => {
    const reader = await provider.createKey({ scopes: ['read'] })
    const input = { prompt: 'x' }
    const submit = await provider.call('POST', '/v1/models/aurora-image', { key: reader.api_key, body: { input } })
    expect(submit).toMatchObject({
      status: 403,
      body: { error: { type: 'invalid_request_error', code: 'insufficient_scope' } },
    })
    const estimate = await provider.call('POST', '/v1/models/aurora-image/estimate', {
      key: reader.api_key,
      body: { input },
    })
    expect(estimate).toMatchObject({ status: 200, body: { credits: 4 } })
    for (const path of ['/v1/models', '/v1/models/aurora-image', '/v1/account']) {
      expect((await provider.call('GET', path, { key: reader.api_key })).status).toBe(200)
    }
  })

  it('lets a key with generate alone submit', async () => {
    const maker = await provider.createKey({ scopes: ['generate'] })
    const submit = await provider.call('POST', '/v1/models/aurora-image', {
      key: maker.api_key,
      body: { input: { prompt: 'x' } },
    })
    expect(submit.status).toBe(200)
  })
})

describe('the envelope', () => {
  it.each([
    ['GET', '/', 404, 'not_found'],
    ['GET', '/v2/models', 404, 'not_found'],
    ['GET', '/v1', 404, 'not_found'],
    ['GET', '/v1/nothing', 404, 'not_found'],
    ['GET', '/v1/models/', 404, 'not_found'],
    ['GET', '/v1/models/%ff', 404, 'not_found'],
    ['GET', '/v1/requests/%00', 404, 'not_found'],
    ['GET', '/v1/models/no-such-model', 404, 'not_found'],
    ['GET', '/v1/requests/not-a-uuid', 404, 'not_found'],
    ['GET', '/v1/requests/not-a-uuid/status', 404, 'not_found'],
    ['GET', '/v1/requests/5f0c1c5e-3c0a-4c1c-9d5c-1c2d3e4f5a6b', 404, 'not_found'],
    ['POST', '/v1/requests/5f0c1c5e-3c0a-4c1c-9d5c-1c2d3e4f5a6b/cancel', 404, 'not_found'],
    ['GET', '/v1/requests/5f0c1c5e-3c0a-4c1c-9d5c-1c2d3e4f5a6b/cancel', 404, 'not_found'],
    ['DELETE', '/v1/models', 405, 'method_not_allowed'],
    ['PUT', '/v1/models/aurora-image', 405, 'method_not_allowed'],
    ['GET', '/v1/models/aurora-image/estimate', 405, 'method_not_allowed'],
    ['POST', '/v1/requests/5f0c1c5e-3c0a-4c1c-9d5c-1c2d3e4f5a6b', 405, 'method_not_allowed'],
    ['PATCH', '/v1/requests/5f0c1c5e-3c0a-4c1c-9d5c-1c2d3e4f5a6b/status', 405, 'method_not_allowed'],
    ['OPTIONS', '/v1/account', 405, 'method_not_allowed'],
    ['POST', '/healthz', 405, 'method_not_allowed'],
  ])('answers %s %s with %i %s', async (method, path, status, code) => {
    const answer = await provider.call(method, path, { key: key.api_key })
    expect(answer.status).toBe(status)
    expect(errorEnvelopeSchema.parse(answer.body).error).toMatchObject({ type: 'invalid_request_error', code })
    if (status === 405) expect(answer.headers.get('allow')).toMatch(/GET|POST/)
  })

  it.each(['/v1', '/v1/nothing', '/v1/models/', '/v1/models/%ff', '/media/nothing'])(
    'names the whole path of %s',
    async (path) => {
      const { body } = await provider.call('GET', `${path}?type=image`, { key: key.api_key })
      expect(body.error.message).toBe(`there is nothing at GET ${path}`)
    },
  )

  it('requires a key before it reveals which paths exist', async () => {
    for (const path of ['/v1/nothing', '/v1/models/%ff']) expect((await provider.call('GET', path)).status).toBe(401)
    expect((await provider.call('DELETE', '/v1/models')).status).toBe(401)
  })
})

describe('health', () => {
  it('is answered without a key', async () => {
    expect((await provider.call('GET', '/healthz')).status).toBe(200)
    expect((await provider.call('GET', '/readyz')).status).toBe(200)
  })
})

describe('guesses of API keys', () => {
  it('by the hundred on a busy Postgres do not affect callers with valid keys', async () => {
    const { api_key: key } = await provider.createKey()
    expect((await provider.call('GET', '/v1/account', { key })).status).toBe(200)
    const refused: number[] = []
    const guesses: Promise<unknown>[] = []
    const answer = await provider.database.sql.begin(async (sql) => {
      await sql`lock table provider.api_keys in access exclusive mode`
      // At most 500 wait.
      for (let i = 0; i < 650; i += 1) {
        guesses.push(
          provider.call('GET', '/v1/account', { key: `service_live_guess-${i}` }).then(
            ({ status }) => refused.push(status),
            () => {},
          ),
        )
      }
      await eventually(() => refused.length >= 100)
      // Waits for the lock, as the guesses do that are looked up.
      const waiting = provider.call('GET', '/v1/account', { key })
      await eventually(() => refused.length >= 150, 20_000).catch(() => {})
      return { waiting }
    })
    expect((await answer.waiting).status).toBe(200)
    await Promise.all(guesses)
    expect(new Set(refused)).toEqual(new Set([401, 503]))
  })

  it('in an impossible format cause no query', async () => {
    await provider.database.sql.begin(async (sql) => {
      await sql`lock table provider.api_keys in access exclusive mode`
      for (const key of ['sk-123', 'service_', 'x'.repeat(150)]) {
        expect((await provider.call('GET', '/v1/account', { key })).status).toBe(401)
      }
    })
  })
})
