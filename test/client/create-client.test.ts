import { randomUUID } from 'node:crypto'
import { beforeEach, expect, expectTypeOf, it, onTestFinished, vi } from 'vitest'
import {
  createClient,
  GenerationError,
  type Generation,
  type Progress,
  type Result,
} from '../../src/client/read-results.ts'
import type { ResultRow } from '../../src/receiver/queries/results.ts'
import type { ShownGeneration } from '../../src/receiver/submitting/submit.ts'
import { eventually } from '../support/eventually.ts'
import { imageResult, json, type ProviderStand } from '../support/provider-stand.ts'
import { startTestReceiver, type TestReceiver } from '../support/receiver.ts'
import { deliver, failed, okImage } from '../support/webhooks.ts'
import { withReceiver, type WithReceiver } from '../support/with-receiver.ts'

let its: WithReceiver & { stand: ProviderStand }
let receiver: TestReceiver
let id: string
let submits: string[]

beforeEach(async () => {
  its = await withReceiver({ stand: true, followsUp: true })
  ;({ receiver } = its)
  onTestFinished(its.stop)
  id = randomUUID()
  submits = []
  takeSubmits()
})

/** The provider accepts each submit as the same request, and says of it that it runs. */
function takeSubmits(running: object = { status: 'IN_PROGRESS', queue_position: null, progress: 40, logs: [] }) {
  its.stand.answer((_id, req, res) => {
    if (req.method !== 'POST') return json(res, 202, { request_id: id, ...running })
    submits.push(String(req.headers['idempotency-key']))
    const links = { status_url: 'https://x.test/s', response_url: 'https://x.test/r', cancel_url: 'https://x.test/c' }
    return json(res, 200, { request_id: id, status: 'IN_QUEUE', queue_position: 0, ...links, cost: 4 })
  })
}

const client = () => createClient({ url: receiver.internalUrl })
const isSubmitted = () => eventually(async () => submits.length > 0)

it('resolves with the complete result, its media and metadata, and reports progress', async () => {
  const seen: Progress[] = []
  const generating = client().generate(
    'aurora-image',
    { prompt: 'a boat' },
    {
      metadata: { order: 7 },
      onProgress: (progress) => void seen.push(progress),
    },
  )
  await isSubmitted()
  await its.database.sql`update mediadock.requests set tracked_at = now() - interval '1 minute'`
  await eventually(() => seen.some(({ progress }) => progress === 40))
  its.stand.answer((_id, _req, res) => json(res, 200, imageResult(id, 2)))
  await deliver(receiver.webhookUrl, okImage(id).body)
  const { idempotencyKey, result, media } = await generating
  expect(submits).toEqual([idempotencyKey])
  expect(result).toMatchObject({ request_id: id, status: 'COMPLETED', metadata: { order: 7 }, progress: 100 })
  expect(media.map(({ url }) => url)).toEqual([`https://media.test/${id}-0.png`, `https://media.test/${id}-1.png`])
  expectTypeOf(result.metadata).toEqualTypeOf<{ order: number }>()
})

it("rejects with the provider's code, and names the key of the input that is wrong", async () => {
  const refuse = (status: number, code: string, message: string) =>
    its.stand.answer((_id, _req, res) => json(res, status, { error: { type: 'invalid_request_error', code, message } }))
  refuse(402, 'insufficient_credits', 'the balance is too low')
  await expect(client().generate('vela', {})).rejects.toMatchObject({ code: 'insufficient_credits' })
  refuse(422, 'model_input_invalid', 'input.prompt is required')
  await expect(client().generate('vela', {})).rejects.toMatchObject({ code: 'model_input_invalid', field: 'prompt' })
})

it('rejects with generation_failed if the generation failed', async () => {
  const generating = client().generate('vela', { prompt: 'x' })
  generating.catch(() => {})
  await isSubmitted()
  await deliver(receiver.webhookUrl, failed(id).body)
  await expect(generating).rejects.toMatchObject({
    code: 'generation_failed',
    message: expect.stringContaining('gave up'),
  })
})

it('stops waiting at the timeout or when it is aborted; the same key then gets the result of the one submit', async () => {
  const idempotencyKey = randomUUID()
  const input = { prompt: 'x' }
  await expect(client().generate('vela', input, { idempotencyKey, timeoutMs: 300 })).rejects.toMatchObject({
    code: 'timeout',
    idempotencyKey,
  })
  const stop = new AbortController()
  const aborted = client().generate('vela', input, { idempotencyKey, signal: stop.signal })
  stop.abort()
  await expect(aborted).rejects.toBeInstanceOf(GenerationError)
  await expect(aborted).rejects.toMatchObject({ code: 'aborted' })
  await isSubmitted()
  its.stand.answer((_id, _req, res) => json(res, 200, imageResult(id)))
  await deliver(receiver.webhookUrl, okImage(id).body)
  expect(await client().generate('vela', input, { idempotencyKey })).toMatchObject({ result: { request_id: id } })
  expect(submits).toEqual([idempotencyKey])
})

it('waits longer for an answer than the longest wait of a call', async () => {
  const timeout = vi.spyOn(AbortSignal, 'timeout')
  onTestFinished(() => timeout.mockRestore())
  const answering = createClient({ url: receiver.internalUrl, fetch: async () => Response.json({ request_id: id }) })
  await answering.result(id, { waitSeconds: 60 })
  expect(timeout.mock.lastCall?.[0]).toBeGreaterThan(60_000)
})

it('survives a restart of the receiver', async () => {
  const fetchNow: typeof fetch = (input, init) =>
    fetch(
      String(input instanceof Request ? input.url : input).replace('http://receiver.test/', receiver.internalUrl),
      init,
    )
  const generating = createClient({ url: 'http://receiver.test', fetch: fetchNow }).generate('vela', { prompt: 'x' })
  await isSubmitted()
  await receiver.stop()
  receiver = await startTestReceiver({ databaseUrl: its.database.url, providerUrl: its.stand.url, followsUp: true })
  onTestFinished(() => receiver.stop())
  its.stand.answer((_id, _req, res) => json(res, 200, imageResult(id)))
  await deliver(receiver.webhookUrl, okImage(id).body)
  expect(await generating).toMatchObject({ result: { status: 'COMPLETED' } })
  expect(submits).toHaveLength(1)
})

it('reads models, prices and the account with the named key', async () => {
  its.stand.answer((_id, req, res) => json(res, 200, req.method === 'POST' ? { credits: 7 } : { path: req.url }))
  const named = createClient({ url: receiver.internalUrl, keyName: 'sandbox' })
  expect(await named.estimate('vela', { prompt: 'x' })).toEqual({ credits: 7 })
  expect(await named.models()).toEqual({ path: '/v1/models' })
  expect(await named.account()).toEqual({ path: '/v1/account' })
  await expect(named.account({ keyName: 'other' })).rejects.toMatchObject({ code: 'unknown_key' })
  await expect(named.result(randomUUID())).rejects.toMatchObject({ code: 'not_found' })
})

it('rejects if another program answers at the address', async () => {
  for (const status of [200, 404]) {
    const page: typeof fetch = async () => new Response('<html>not here</html>', { status })
    const elsewhere = createClient({ url: 'http://elsewhere.test', fetch: page })
    await expect(elsewhere.generate('vela', {})).rejects.toMatchObject({ code: 'unexpected_answer' })
  }
})

it("has the types of the API's answers", () => {
  expectTypeOf<Omit<ResultRow, 'output' | 'metadata'>>().toExtend<Omit<Result, 'output' | 'metadata'>>()
  expectTypeOf<Omit<ShownGeneration, 'metadata'>>().toExtend<
    Pick<Generation, 'idempotency_key' | 'state' | 'request_id' | 'cost' | 'last_error'>
  >()
})
