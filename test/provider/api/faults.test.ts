import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Faults } from '../../../src/provider/domain/faults.ts'
import { setFaults } from '../../../src/provider/operating/commands.ts'
import { eventually } from '../../support/eventually.ts'
import { send } from '../../support/http.ts'
import { startTestProvider, type TestProvider } from '../support/running-provider.ts'
import { startWebhookCatcher } from '../support/webhook-catcher.ts'

let catcher: Awaited<ReturnType<typeof startWebhookCatcher>>
let provider: TestProvider
beforeAll(async () => {
  catcher = await startWebhookCatcher()
  provider = await startTestProvider({ webhookAllow: [catcher.origin] })
})
afterAll(async () => {
  await provider.stop()
  await catcher.close()
})

async function submitWith(faults: Faults) {
  const key = await provider.createKey()
  await setFaults(provider.deps, key.id, faults)
  const body = { input: { prompt: 'x' }, webhook_url: `${catcher.origin}/hook` }
  const submitted = await provider.call('POST', '/v1/models/aurora-image', { key: key.api_key, body })
  const id: string = submitted.body.request_id
  const result = () => provider.call('GET', `/v1/requests/${id}`, { key: key.api_key })
  const webhooks = () => catcher.caught.filter(({ body: bytes }) => bytes.includes(id))
  return {
    key,
    submitted,
    result,
    webhooks,
    ended: () => eventually(async () => ((await result()).status === 200 ? result() : undefined)),
  }
}

describe('a sandbox key with faults', () => {
  it('failed: goes through the queue, ends FAILED and sends the webhook', async () => {
    const { submitted, ended, webhooks } = await submitWith({ failed: 1 })
    expect(submitted.body.status).toBe('IN_QUEUE')
    expect((await ended()).body).toMatchObject({ status: 'FAILED', cost: 0, error: { code: 'GENERATION_FAILED' } })
    const [webhook] = await eventually(() => (webhooks().length > 0 ? webhooks() : undefined))
    expect(JSON.parse(String(webhook?.body))).toMatchObject({ status: 'ERROR', error: { code: 'GENERATION_FAILED' } })
  })

  it('canceled: ends CANCELED without a webhook', async () => {
    const { ended } = await submitWith({ canceled: 1 })
    const { body } = await ended()
    expect(body).toMatchObject({ status: 'CANCELED', cost: 0 })
    const rows = await provider.database.sql`select from provider.deliveries where request_id = ${body.request_id}`
    expect(rows).toHaveLength(0)
  })

  it('slow_seconds: is IN_PROGRESS first, with progress, and free', async () => {
    const { key, result, ended } = await submitWith({ slow_seconds: 1 })
    const seen = new Set<number>()
    await eventually(async () => {
      const { body, status } = await result()
      if (body.status === 'IN_PROGRESS') seen.add(body.progress)
      return status === 200
    })
    expect((await ended()).body).toMatchObject({ status: 'COMPLETED', cost: 4 })
    expect(Math.max(...seen)).toBeGreaterThan(0)
    expect((await provider.call('GET', '/v1/account', { key: key.api_key })).body.balance).toEqual({ credits: 0 })
  })

  it('drop: never sends its webhook, late_seconds: later', async () => {
    const dropped = await submitWith({ drop: 1 })
    const late = await submitWith({ late_seconds: 1 })
    const [row] = await provider.database
      .sql`select state from provider.deliveries where request_id = ${dropped.submitted.body.request_id}`
    expect(row?.['state']).toBe('dropped')
    const started = Date.now()
    await eventually(() => late.webhooks().length === 1)
    expect(Date.now() - started).toBeGreaterThan(700)
    expect(dropped.webhooks()).toEqual([])
  })

  it('truncated: breaks off the answer with the result', async () => {
    const { submitted, key } = await submitWith({ truncated: 1 })
    const response = await send(`${provider.url}/v1/requests/${submitted.body.request_id}`, 'GET', {
      headers: { 'x-api-key': key.api_key },
    })
    expect(response.status).toBe(200)
    expect(() => JSON.parse(response.text)).toThrow(SyntaxError)
    await setFaults(provider.deps, key.id, null)
    expect(
      (await provider.call('GET', `/v1/requests/${submitted.body.request_id}`, { key: key.api_key })).body.status,
    ).toBe('COMPLETED')
  })

  it('and a share of 0: behaves as the spec says', async () => {
    expect((await submitWith({ failed: 0, drop: 0 })).submitted.body.status).toBe('COMPLETED')
  })
})
