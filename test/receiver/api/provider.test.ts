import { once } from 'node:events'
import http from 'node:http'
import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type ProviderStand, json as answerJson } from '../../support/provider-stand.ts'
import { liveKey, sandboxKey, type TestReceiver } from '../../support/receiver.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { call } from './calls.ts'

let receiver: TestReceiver
let stand: ProviderStand

beforeAll(async () => {
  const its = await withReceiver({ stand: true })
  ;({ receiver, stand } = its)
  return its.stop
})
afterEach(() => {
  stand.calls.length = 0
})

const entry = {
  slug: 'aurora',
  type: 'image',
  name: 'Aurora',
  capabilities: ['text-to-image'],
  pricing: { credits: 4 },
}
const refusal = { error: { type: 'invalid_request_error', code: 'model_input_invalid', message: 'input.x is unknown' } }

describe('reads of the provider', () => {
  it('uses the named key, or the first one', async () => {
    stand.answer((_id, _req, res) => answerJson(res, 200, { data: [entry] }))
    expect(await call(receiver, 'GET /api/models?key_name=sandbox')).toMatchObject({
      status: 200,
      json: { data: [entry] },
    })
    expect(await call(receiver, 'GET /api/models')).toMatchObject({ status: 200 })
    expect(stand.calls).toEqual([
      { path: '/v1/models', authorization: `Bearer ${sandboxKey.api_key}` },
      { path: '/v1/models', authorization: `Bearer ${liveKey.api_key}` },
    ])
  })

  it('caches an answer for the same call, and shares a running call', async () => {
    stand.answer((id, _req, res) => answerJson(res, 200, { slug: id }))
    const answers = await Promise.all([1, 2, 3].map(() => call(receiver, 'GET /api/models/vela')))
    answers.push(await call(receiver, 'GET /api/models/vela'))
    expect(answers.map(({ json }) => json.slug)).toEqual(['vela', 'vela', 'vela', 'vela'])
    expect(stand.calls).toHaveLength(1)
  })

  it("passes the input of an estimate on, and the provider's own refusal back", async () => {
    const bodies: string[] = []
    stand.answer((_id, req, res) => {
      req.on('data', (chunk: Buffer) => bodies.push(chunk.toString()))
      req.on('end', () =>
        answerJson(
          res,
          bodies.at(-1)?.includes('x') ? 422 : 200,
          bodies.at(-1)?.includes('x') ? refusal : { credits: 7.5 },
        ),
      )
    })
    const estimate = (input: object) => call(receiver, 'POST /api/models/a%2Fb/estimate', { body: { input } })
    expect(await estimate({ prompt: 'a boat' })).toMatchObject({ status: 200, json: { credits: 7.5 } })
    expect(await estimate({ x: 1 })).toMatchObject({ status: 422, json: refusal })
    expect(bodies).toEqual(['{"input":{"prompt":"a boat"}}', '{"input":{"x":1}}'])
    expect(stand.calls.map(({ path }) => path)).toEqual(['/v1/models/a%2Fb/estimate', '/v1/models/a%2Fb/estimate'])
  })

  it('answers 502 without a usable answer of the provider, and calls again the next time', async () => {
    stand.answer((_id, _req, res) => answerJson(res, 500, {}))
    expect(await call(receiver, 'GET /api/account')).toMatchObject({
      status: 502,
      json: { error: { type: 'api_error', code: 'provider_unreachable' } },
    })
    const account = { account_id: 'a', balance: { credits: 12 }, usage_30d: { requests: 1, credits_spent: 4 } }
    stand.answer((_id, _req, res) => answerJson(res, 200, account))
    expect(await call(receiver, 'GET /api/account')).toMatchObject({ status: 200, json: account })
  })

  it('refuses a key that is not configured, an unknown parameter and a body without input', async () => {
    expect(await call(receiver, 'GET /api/models?key_name=nobody')).toMatchObject({
      status: 422,
      json: { error: { code: 'unknown_key' } },
    })
    expect(await call(receiver, 'GET /api/models?keyname=live')).toMatchObject({
      status: 400,
      json: { error: { code: 'invalid_filter' } },
    })
    expect(await call(receiver, 'POST /api/models/vela/estimate', { body: {} })).toMatchObject({
      status: 400,
      json: { error: { code: 'invalid_body' } },
    })
    expect(stand.calls).toEqual([])
  })

  it("never lets a model's name address another call of the provider", async () => {
    // A client of the standard library would resolve these before it sends them.
    for (const name of ['..', '%2E%2E', '.']) {
      const request = http.request(new URL(receiver.internalUrl), { path: `/api/models/${name}?key_name=live` }).end()
      const [response]: http.IncomingMessage[] = await once(request, 'response')
      expect({ name, status: response?.statusCode }).toEqual({ name, status: 404 })
      response?.resume()
    }
    stand.answer((_id, _req, res) => answerJson(res, 200, {}))
    await call(receiver, 'GET /api/models/..%2fkeys')
    expect(stand.calls.map(({ path }) => path)).toEqual(['/v1/models/..%2Fkeys'])
  })

  it("takes a call of the key's budget, and returns when the next one is possible", async () => {
    const its = await withReceiver({ stand: true, settings: { fetchRatePerMinute: 1 } })
    try {
      its.stand.answer((_id, _req, res) => answerJson(res, 200, { data: [] }))
      expect(await call(its.receiver, 'GET /api/models')).toMatchObject({ status: 200 })
      const { status, json, headers } = await call(its.receiver, 'GET /api/account')
      expect({ status, code: json.error.code }).toEqual({ status: 429, code: 'no_call_left' })
      expect(Number(headers.get('retry-after'))).toBeGreaterThan(0)
    } finally {
      await its.stop()
    }
  })

  it('rests a key that the provider limits', async () => {
    const its = await withReceiver({ stand: true })
    try {
      const limited = { error: { type: 'rate_limit_error', code: 'rate_limit_exceeded', message: 'too many requests' } }
      its.stand.answer((_id, _req, res) => answerJson(res, 429, limited, { 'retry-after': '30' }))
      const first = await call(its.receiver, 'GET /api/models')
      expect({ status: first.status, json: first.json, after: first.headers.get('retry-after') }).toEqual({
        status: 429,
        json: limited,
        after: '30',
      })
      expect(await call(its.receiver, 'GET /api/models')).toMatchObject({
        status: 429,
        json: { error: { code: 'no_call_left' } },
      })
      expect(its.stand.calls).toHaveLength(1)
    } finally {
      await its.stop()
    }
  })
})
