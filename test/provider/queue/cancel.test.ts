import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { checkLedger } from '../../../src/provider/accounts/ledger.ts'
import { startTestProvider, type TestProvider } from '../support/running-provider.ts'

let provider: TestProvider
beforeAll(async () => {
  provider = await startTestProvider({ cancelEndpoint: true })
})
afterAll(() => provider.stop())

describe('POST /v1/requests/{id}/cancel, when it is on', () => {
  it('cancels a request that is IN_QUEUE, refunds it, and refuses any other', async () => {
    const key = await provider.createKey({ account: 'a', environment: 'live' })
    await provider.grant('a', 200)
    const body = { input: { prompt: 'x' } }
    const submitted = await Promise.all(
      Array.from({ length: 30 }, () => provider.call('POST', '/v1/models/aurora-image', { key: key.api_key, body })),
    )
    // The last in the queue is far from being run.
    const last = submitted.toSorted((a, b) => b.body.queue_position - a.body.queue_position)[0]?.body.request_id
    const cancel = (id: string, by = key.api_key) => provider.call('POST', `/v1/requests/${id}/cancel`, { key: by })
    const stranger = await provider.createKey({ environment: 'live' })
    expect((await cancel(last, stranger.api_key)).status).toBe(404)
    const reader = await provider.createKey({ account: 'a', environment: 'live', scopes: ['read'] })
    expect(await cancel(last, reader.api_key)).toMatchObject({
      status: 403,
      body: { error: { code: 'insufficient_scope' } },
    })
    expect(await cancel(last)).toMatchObject({
      status: 200,
      body: { request_id: last, status: 'CANCELED', queue_position: null },
    })
    expect(await cancel(last)).toMatchObject({
      status: 409,
      body: { error: { type: 'invalid_request_error', code: 'not_cancelable' } },
    })
    expect((await provider.call('GET', '/v1/account', { key: key.api_key })).body).toMatchObject({
      balance: { credits: 84 },
      usage_30d: { requests: 30 },
    })
    expect((await checkLedger(provider.deps.db)).ok).toBe(true)
    expect((await provider.call('GET', `/v1/requests/${last}/cancel`, { key: key.api_key })).status).toBe(405)
  })
})
