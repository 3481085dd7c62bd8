import { createPublicKey } from 'node:crypto'
import { createFalClient, type WebHookResponse } from '@fal-ai/client'
import Replicate, { validateWebhook } from 'replicate'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { atOnce, type SourceKind } from '../../../src/receiver/domain/source.ts'
import { fal } from '../../../src/receiver/sources/fal.ts'
import { replicate } from '../../../src/receiver/sources/replicate.ts'
import { eventually } from '../../support/eventually.ts'
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

/** The receiver's own functions of a kind, with real calls to the provider. */
async function loopOf(kind: SourceKind, name: 'fal' | 'replicate', faults?: object) {
  const key = await provider.createKey()
  if (faults !== undefined)
    await provider.database.sql`
      update provider.api_keys set faults = ${provider.database.sql.json({ ...faults })} where id = ${key.id}`
  const api = {
    url: `${provider.url}/${name}`,
    apiKey: key.api_key,
    call: async ({ url, ...request }: { url: string; method?: string; headers: Record<string, string> }) => {
      const response = await fetch(url, request)
      return { status: response.status, body: await response.text(), retryAfterSeconds: undefined }
    },
  }
  const submitted = await kind.submit(
    {
      model: 'local/aurora-image-preview',
      input: { prompt: 'a lighthouse', num_images: 3, aspect_ratio: '1:1' },
      webhookUrl: `${catcher.origin}/webhooks/${name}?generation=1`,
      idempotencyKey: '',
    },
    api,
  )
  if (submitted.kind !== 'submitted') expect.fail(JSON.stringify(submitted))
  const { jobId } = submitted
  const caught = await eventually(async () => catcher.caught.find(({ body }) => body.includes(jobId)))
  const header = (wanted: string) => [caught.headers[wanted] ?? []].flat()
  const polled = await kind.fetchResult({ jobId, model: 'local/aurora-image-preview' }, api)
  return { key, api, jobId, caught, arrived: { header, body: caught.body }, polled }
}

const nowSeconds = () => Math.floor(Date.now() / 1000)
const images = Array.from({ length: 3 }, () => ({ kind: 'image' }))

describe('in the shape of Replicate', () => {
  it('the webhook is signed and carries the result of the poll', async () => {
    const { key, jobId, caught, arrived, polled } = await loopOf(replicate, 'replicate')
    const secrets = [{ name: 'mine', signingSecret: key.signing_secret }]
    expect(atOnce(replicate.verify(arrived, secrets, nowSeconds()))).toMatchObject({ ok: true, keyName: 'mine' })
    const parsed = replicate.parse(JSON.parse(caught.body.toString()))
    expect(parsed).toMatchObject({ kind: 'report', report: { jobId, status: 'COMPLETED', media: images } })
    expect(polled).toMatchObject({ kind: 'result', report: { status: 'COMPLETED', media: images } })
  })

  it("Replicate's own client reads the prediction and verifies the webhook", async () => {
    const { key, jobId, caught } = await loopOf(replicate, 'replicate')
    const client = new Replicate({ auth: key.api_key, baseUrl: `${provider.url}/replicate` })
    expect(await client.predictions.get(jobId)).toMatchObject({ id: jobId, status: 'succeeded' })
    const [id, timestamp, signature] = ['webhook-id', 'webhook-timestamp', 'webhook-signature'].map((name) =>
      String(caught.headers[name]),
    )
    const body = caught.body.toString()
    const secret = key.signing_secret
    const wanted = { id: id ?? '', timestamp: timestamp ?? '', signature: signature ?? '', body, secret }
    expect(await validateWebhook(wanted)).toBe(true)
    expect(await validateWebhook({ ...wanted, body: `${body} ` })).toBe(false)
  })

  it('a failure is one', async () => {
    const { caught, polled } = await loopOf(replicate, 'replicate', { failed: 1 })
    const failed = { status: 'FAILED', error: { message: expect.stringContaining('a fault') } }
    expect(replicate.parse(JSON.parse(caught.body.toString()))).toMatchObject({ kind: 'report', report: failed })
    expect(polled).toMatchObject({ kind: 'result', report: failed })
  })
})

describe('in the shape of fal', () => {
  it("fal's own client submits, follows the queue and reads the result", async () => {
    const { api_key } = await provider.createKey()
    const toProvider: typeof fetch = (url, init) =>
      fetch(String(url).replace('https://queue.fal.run', `${provider.url}/fal`), init)
    const { queue } = createFalClient({ credentials: api_key, fetch: toProvider })
    const model = 'local/aurora-image-preview'
    const { request_id: requestId } = await queue.submit(model, {
      input: { prompt: 'a lighthouse', num_images: 2 },
      webhookUrl: `${catcher.origin}/webhooks/fal?generation=2`,
    })
    const ended = await queue.subscribeToStatus(model, { requestId, pollInterval: 50 })
    expect(ended).toMatchObject({ status: 'COMPLETED', request_id: requestId })
    const { data } = await queue.result(model, { requestId })
    const caught = await eventually(async () => catcher.caught.find(({ body }) => body.includes(requestId)))
    const webhook: WebHookResponse = JSON.parse(caught.body.toString())
    expect(webhook).toMatchObject({ status: 'OK', request_id: requestId, payload: data })
    expect(fal.parse(webhook)).toMatchObject({ kind: 'report', report: { jobId: requestId, media: images.slice(1) } })
  })

  it('the webhook is signed with the published key and carries the result of the poll', async () => {
    const { key, jobId, caught, arrived, polled } = await loopOf(fal, 'fal')
    const keySet = await (await fetch(`${provider.url}/fal/.well-known/jwks.json`)).json()
    const { keys } = z
      .object({ keys: z.array(z.object({ kty: z.string(), crv: z.string(), x: z.string() })) })
      .parse(keySet)
    const [publicKey = expect.fail()] = keys
    expect(createPublicKey({ format: 'jwk', key: publicKey }).asymmetricKeyType).toBe('ed25519')
    const secrets = [{ name: 'mine', signingSecret: publicKey.x, account: key.account }]
    expect(atOnce(fal.verify(arrived, secrets, nowSeconds()))).toMatchObject({ ok: true, keyName: 'mine' })
    const parsed = fal.parse(JSON.parse(caught.body.toString()))
    expect(parsed).toMatchObject({ kind: 'report', report: { jobId, status: 'COMPLETED', media: images } })
    expect(polled).toMatchObject({ kind: 'result', report: { status: 'COMPLETED', media: images } })
  })

  it('a failure is one', async () => {
    const { caught, polled } = await loopOf(fal, 'fal', { failed: 1 })
    const failed = { status: 'FAILED', error: { message: expect.stringContaining('a fault') } }
    expect(fal.parse(JSON.parse(caught.body.toString()))).toMatchObject({ kind: 'report', report: failed })
    expect(polled).toMatchObject({ kind: 'result', report: failed })
  })

  it('an error has its cause in detail', async () => {
    const key = await provider.createKey()
    const url = `${provider.url}/fal/local/none`
    const headers = { authorization: `Key ${key.api_key}`, 'content-type': 'application/json' }
    const answer = await fetch(url, { method: 'POST', headers, body: '{}' })
    expect([answer.status, await answer.json()]).toEqual([404, { detail: expect.stringContaining('none') }])
    expect((await fetch(url, { method: 'POST', body: '{}' })).status).toBe(401)
  })
})

it('in production there are no shapes', async () => {
  const production = await startTestProvider({ production: true })
  try {
    expect((await fetch(`${production.url}/fal/.well-known/jwks.json`)).status).toBe(404)
    const key = await production.createKey()
    const answer = await production.call('GET', '/replicate/predictions/x', { key: key.api_key })
    expect(z.object({ error: z.object({ code: z.literal('not_found') }) }).parse(answer.body)).toBeTruthy()
  } finally {
    await production.stop()
  }
})
