import Stripe from 'stripe'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { notificationSchema, resultSchema, statusBodySchema, submittedSchema } from '../../src/wire/schemas.ts'
import { eventually } from '../support/eventually.ts'
import { verify } from '../support/verify.ts'
import { likeness } from './engines/reference-files.ts'
import { startTestProvider, type TestProvider } from './support/running-provider.ts'
import { startWebhookCatcher } from './support/webhook-catcher.ts'

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

const caughtFor = (requestId: string) => catcher.caught.find(({ body }) => body.toString().includes(requestId))

describe('a live generation', () => {
  it('goes from IN_QUEUE to COMPLETED, is settled, and notifies its webhook_url', async () => {
    const key = await provider.createKey({ account: 'studio', environment: 'live' })
    await provider.grant('studio', 100)
    const body = { input: { prompt: 'a lighthouse' }, webhook_url: `${catcher.origin}/hooks` }
    const submitted = await provider.call('POST', '/v1/models/aurora-image', { key: key.api_key, body })
    expect(submitted).toMatchObject({ status: 200, body: { status: 'IN_QUEUE', queue_position: 0, cost: 4 } })
    const { request_id: id, status_url: statusUrl, response_url: responseUrl } = submittedSchema.parse(submitted.body)
    expect(statusUrl).toBe(`${provider.settings.baseUrl}/v1/requests/${id}/status`)
    expect(responseUrl).toBe(`${provider.settings.baseUrl}/v1/requests/${id}`)

    const result = await eventually(async () => {
      const answer = await provider.call('GET', `/v1/requests/${id}?logs=1`, { key: key.api_key })
      if (answer.status === 202) statusBodySchema.parse(answer.body)
      return answer.status === 200 && answer
    }, 100_000)
    expect(resultSchema.parse(result.body)).toMatchObject({ status: 'COMPLETED', model: 'aurora-image', cost: 4 })
    const [image] = result.body.output.images
    const media = await fetch(image.url)
    expect(media.headers.get('content-type')).toBe('image/png')
    expect((await media.arrayBuffer()).byteLength).toBeGreaterThan(1000)

    const status = await provider.call('GET', `/v1/requests/${id}/status?logs=1`, { key: key.api_key })
    expect(status.body).toMatchObject({ status: 'COMPLETED', queue_position: null, progress: 100 })
    expect(status.body.logs).not.toEqual([])
    for (const query of ['', '?logs=0', '?logs=yes', '?logs=1&logs=1']) {
      const unasked = await provider.call('GET', `/v1/requests/${id}/status${query}`, { key: key.api_key })
      expect(unasked.body, query).toMatchObject({ status: 'COMPLETED', logs: [] })
    }
    const account = await provider.call('GET', '/v1/account', { key: key.api_key })
    expect(account.body).toEqual({
      account_id: 'studio',
      balance: { credits: 96 },
      usage_30d: { requests: 1, credits_spent: 4 },
    })

    const { headers, body: bytes } = await eventually(() => caughtFor(id))
    const verified = verify(
      bytes,
      String(headers['x-service-signature']),
      [{ name: 'k', signingSecret: key.signing_secret }],
      Date.now() / 1000,
    )
    expect(verified).toMatchObject({ ok: true, timestampSeconds: Number(headers['x-service-timestamp']) })
    expect(headers['user-agent']).toMatch(/^mediadock-provider\/\d/)
    expect(notificationSchema.parse(JSON.parse(bytes.toString()))).toEqual({
      request_id: id,
      status: 'OK',
      payload: { model: 'aurora-image', output: { images: [{ url: image.url }] }, cost: 4 },
    })
  })
})

describe('an output as the next input', () => {
  it('is read from the media host, also on plain http and this machine', async () => {
    const key = await provider.createKey({ account: 'editor', environment: 'live' })
    const sandbox = await provider.createKey({ account: 'editor' })
    await provider.grant('editor', 100)
    const run = async ({ api_key: by }: typeof key, slug: string, input: object) => {
      const { body } = await provider.call('POST', `/v1/models/${slug}`, { key: by, body: { input } })
      return eventually(async () => {
        const answer = await provider.call('GET', `/v1/requests/${body.request_id}`, { key: by })
        return answer.status === 200 && answer.body
      }, 100_000)
    }
    // A sandbox key gets a picture at once.
    const first = await run(sandbox, 'aurora-image', { prompt: 'a lighthouse' })
    const [{ url }] = first.output.images
    expect(new URL(url).protocol).toBe('http:')
    const next = await run(key, 'aurora-image-edit', { prompt: 'at night', image_urls: [url], strength: 0.2 })
    expect(next.status).toBe('COMPLETED')
    const [before, after] = await Promise.all(
      [url, next.output.images[0].url].map(async (link: string) =>
        Buffer.from(await (await fetch(link)).arrayBuffer()),
      ),
    )
    expect(await likeness(before ?? '', after ?? '')).toBeGreaterThan(0.9)
  })
})

describe('a sandbox generation', () => {
  it('is COMPLETED at once, charges nothing, and notifies its webhook_url', async () => {
    const key = await provider.createKey({ account: 'sandbox-only' })
    const body = { input: { prompt: 'a lighthouse' }, webhook_url: `${catcher.origin}/hooks` }
    const submitted = await provider.call('POST', '/v1/models/aurora-image', { key: key.api_key, body })
    expect(submitted).toMatchObject({ status: 200, body: { status: 'COMPLETED', queue_position: 0, cost: 4 } })
    const result = await provider.call('GET', `/v1/requests/${submitted.body.request_id}`, { key: key.api_key })
    expect(resultSchema.parse(result.body)).toMatchObject({ status: 'COMPLETED', cost: 4 })
    const account = await provider.call('GET', '/v1/account', { key: key.api_key })
    expect(account.body).toMatchObject({ balance: { credits: 0 }, usage_30d: { requests: 0, credits_spent: 0 } })
    const { headers, body: bytes } = await eventually(() => caughtFor(submitted.body.request_id))
    // As docs/provider.md says.
    const signature = String(headers['x-service-signature'])
    const event = Stripe.webhooks.constructEvent(bytes, signature, key.signing_secret)
    expect(event).toMatchObject({ request_id: submitted.body.request_id, status: 'OK' })
  })
})
