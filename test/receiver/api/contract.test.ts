import { spawn, type ChildProcess } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import fs from 'node:fs/promises'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { imageResult, json as answerJson, type ProviderStand } from '../../support/provider-stand.ts'
import { liveKey, sandboxKey, type TestReceiver } from '../../support/receiver.ts'
import { deliver, failed, okImage } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { call, deliverAndSettle, type Call } from './calls.ts'

/** Prism stands between the test and the receiver: a call or an answer that the document does not allow becomes a problem+json. */
let database: TestDatabase
let stand: ProviderStand
let receiver: TestReceiver
let prism: ChildProcess
let proxied: TestReceiver
let folder: string
const token = 'a-token-of-the-tests-that-is-long-enough'
const driven = new Set<string>()

beforeAll(async () => {
  const its = await withReceiver({ stand: true, settings: { internalToken: token } })
  ;({ database, receiver, stand } = its)
  stand.answer((id, _req, res) => answerJson(res, 200, imageResult(id, 2)))
  folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-api-'))
  const file = path.join(folder, 'openapi.json')
  await fs.writeFile(file, (await authorized(receiver, 'GET /api/openapi.json')).text)
  const port = await freePort()
  const bin = path.resolve(import.meta.dirname, '../../../node_modules/@stoplight/prism-cli/dist/index.js')
  prism = spawn(
    process.execPath,
    [bin, 'proxy', '--errors', '-h', '127.0.0.1', '-p', String(port), file, receiver.internalUrl],
    {
      stdio: 'ignore',
    },
  )
  proxied = { ...receiver, internalUrl: `http://127.0.0.1:${port}/` }
  await eventually(async () => (await authorized(proxied, 'GET /api/stats')).status === 200)
  return its.stop
})
afterAll(async () => {
  prism.kill('SIGKILL')
  await fs.rm(folder, { recursive: true, force: true })
})

async function freePort(): Promise<number> {
  const server = net.createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  server.close()
  await once(server, 'close')
  return typeof address === 'object' && address !== null ? address.port : 0
}

function authorized(to: TestReceiver, operation: string, options: Call = {}) {
  return call(to, operation, { ...options, headers: { authorization: `Bearer ${token}`, ...options.headers } })
}

/** A call through Prism; `template` is the path as the document has it. */
async function through(template: string, where: string, options: Call = {}) {
  const [method = ''] = template.split(' ')
  const answer = await authorized(proxied, `${method} ${where}`, options)
  expect(answer.headers.get('content-type'), answer.text).toMatch(/^application\/json/)
  driven.add(template)
  return answer
}

/** decisions, Receiver: internal listener. */
const promised = [
  'POST /api/generations',
  'GET /api/generations/{idempotency_key}',
  'POST /api/requests',
  'GET /api/requests',
  'GET /api/requests/{id}',
  'POST /api/requests/{id}/reconcile',
  'POST /api/requests/{id}/cancel',
  'GET /api/results/{request_id}',
  'GET /api/feed',
  'GET /api/subscriptions',
  'POST /api/subscriptions',
  'POST /api/subscriptions/{name}/pause',
  'POST /api/subscriptions/{name}/resume',
  'POST /api/subscriptions/{name}/test',
  'POST /api/subscriptions/{name}/roll',
  'POST /api/subscriptions/{name}/remove',
  'GET /api/deliveries',
  'POST /api/deliveries/replay',
  'GET /api/deliveries/{id}',
  'POST /api/deliveries/{id}/replay',
  'GET /api/arrivals',
  'GET /api/quarantine',
  'POST /api/quarantine/verify',
  'GET /api/quarantine/causes',
  'GET /api/parked/causes',
  'GET /api/reconciler',
  'GET /api/reconciler/runs',
  'POST /api/reconciler/run',
  'GET /api/problems',
  'GET /api/keys',
  'GET /api/give-ups',
  'GET /api/issues',
  'POST /api/issues/{id}/mute',
  'GET /api/search',
  'GET /api/minutes',
  'GET /api/audit',
  'GET /api/stats',
  'GET /api/models',
  'GET /api/models/{model}',
  'POST /api/models/{model}/estimate',
  'GET /api/account',
  'GET /api/costs',
  'GET /api/openapi.json',
]
/** Files and streams; not JSON, so not for the proxy. */
const files = ['GET /api/results/{request_id}/events']

describe('the OpenAPI document', () => {
  it('is OpenAPI 3.1 and lists exactly the promised calls', async () => {
    const { json } = await authorized(receiver, 'GET /api/openapi.json')
    expect(json.openapi).toMatch(/^3\.1\./)
    const tags = json.tags.map(({ name }: { name: string }) => name)
    for (const [path, methods] of Object.entries<Record<string, { tags?: string[]; summary?: string }>>(json.paths))
      for (const [method, operation] of Object.entries(methods)) {
        expect(operation.tags, `${method} ${path}`).toEqual([expect.toBeOneOf(tags)])
        expect(operation.summary, `${method} ${path}`).toMatch(/^[A-Z][^]{8}/)
      }
    const named = Object.entries<object>(json.paths).flatMap(([where, item]) =>
      Object.keys(item).map((method) => `${method.toUpperCase()} ${where}`),
    )
    expect(new Set(named)).toEqual(new Set([...promised, ...files]))
    const { parameters } = json.paths['/api/deliveries'].get
    expect(parameters.map(({ name }: { name: string }) => name).toSorted()).toEqual([
      'cursor',
      'flag',
      'ids',
      'key_name',
      'limit',
      'min_ack_ms',
      'min_arrivals',
      'min_skew_seconds',
      'model',
      'outcome',
      'reason',
      'request_id',
      'since',
      'source_name',
      'state',
      'until',
      'webhook_id',
    ])
    for (const { schema } of parameters) expect(schema).toMatchObject({ type: expect.any(String) })
    expect(json.components.schemas.DeliveryFilters.properties.state).toMatchObject({
      enum: ['pending', 'processed', 'parked'],
    })
  })

  it.each(promised)('%s exists, and its path has no other method', async (operation) => {
    const [method = '', template = ''] = operation.split(' ')
    const where = template.replaceAll(/\{\w+\}/g, randomUUID())
    const status = (await authorized(receiver, `${method} ${where}`)).status
    expect([200, 400, 404]).toContain(status)
    const { status: wrong, headers } = await authorized(receiver, `DELETE ${where}`)
    expect(wrong).toBe(405)
    expect(headers.get('allow')?.split(', ')).toContain(method)
  })
})

describe('through a validating proxy', () => {
  it('Prism reports a violation of the document', async () => {
    const answer = await authorized(proxied, 'GET /api/deliveries?state=done')
    expect(answer.headers.get('content-type')).toContain('problem+json')
  })

  it('every call conforms to the document', async () => {
    const to = { receiver, database }
    const sample = okImage()
    const tracked = { request_id: sample.requestId, model: 'aurora-image', key_name: 'live', metadata: { order: 1 } }
    await through('POST /api/requests', '/api/requests', { body: tracked })
    await through('POST /api/requests', '/api/requests', { body: tracked })
    const id = await deliverAndSettle(to, sample, { webhookId: randomUUID() })
    await deliver(receiver.webhookUrl, failed().body, { secret: 'whsec_unknown' })
    await eventually(async () => (await database.sql`select from mediadock.quarantine`).length === 1)
    await deliverAndSettle(to, { requestId: '', body: Buffer.from('no json') }, { webhookId: randomUUID() })
    const page = await through(
      'GET /api/deliveries',
      '/api/deliveries?limit=1&state=processed&outcome=landed&key_name=live&since=2026-01-01T00:00:00Z',
    )
    expect(page.json.data).toHaveLength(1)
    await through('GET /api/deliveries', '/api/deliveries?limit=1')
    await through('GET /api/deliveries/{id}', `/api/deliveries/${id}`)
    await through('GET /api/deliveries/{id}', `/api/deliveries/${randomUUID()}`)
    await through('POST /api/deliveries/{id}/replay', `/api/deliveries/${id}/replay`, { body: { dry_run: true } })
    await through('POST /api/deliveries/replay', '/api/deliveries/replay', {
      body: { filter: { request_id: sample.requestId }, dry_run: true },
    })
    await through('GET /api/requests', `/api/requests?status=COMPLETED&overdue=false`)
    await through('GET /api/requests/{id}', `/api/requests/${sample.requestId}`)
    await through('POST /api/requests/{id}/reconcile', `/api/requests/${sample.requestId}/reconcile`)
    const canceled = await through('POST /api/requests/{id}/cancel', `/api/requests/${sample.requestId}/cancel`)
    expect(canceled.status).toBe(409)
    await through('GET /api/results/{request_id}', `/api/results/${sample.requestId}?wait=1`)
    await through('GET /api/feed', '/api/feed?after=0&limit=2&wait=1')
    const subscription = { name: 'gallery', url: 'https://gallery.example.com/changes', retry_hours: 2, from: 'oldest' }
    expect((await through('POST /api/subscriptions', '/api/subscriptions', { body: subscription })).status).toBe(201)
    expect((await through('POST /api/subscriptions', '/api/subscriptions', { body: subscription })).status).toBe(409)
    for (const act of ['pause', 'resume', 'roll', 'remove'])
      expect(
        (await through(`POST /api/subscriptions/{name}/${act}`, `/api/subscriptions/gallery/${act}`)).status,
        act,
      ).toBe(200)
    // These calls reach no other server.
    expect((await through('POST /api/subscriptions/{name}/test', '/api/subscriptions/nobody/test')).status).toBe(404)
    await through('GET /api/subscriptions', '/api/subscriptions')
    await through('GET /api/arrivals', '/api/arrivals')
    await through('GET /api/quarantine', '/api/quarantine')
    await through('POST /api/quarantine/verify', '/api/quarantine/verify')
    await through('POST /api/reconciler/run', '/api/reconciler/run')
    for (const name of [
      'reconciler',
      'reconciler/runs',
      'keys',
      'give-ups',
      'issues',
      'minutes',
      'problems',
      'audit',
      'quarantine/causes',
      'parked/causes',
      'stats',
    ]) {
      expect((await through(`GET /api/${name}`, `/api/${name}`)).status, name).toBe(200)
    }
    await through('GET /api/search', `/api/search?q=${sample.requestId}`)
    // An id that no issue has: the watch may have opened the first ones for what was sent above.
    expect(
      (await through('POST /api/issues/{id}/mute', '/api/issues/1000000/mute', { body: { minutes: 60 } })).status,
    ).toBe(404)
    await through('GET /api/openapi.json', '/api/openapi.json')
  })

  it('submitting conforms to the document: accepted, refused and unanswered', async () => {
    const idempotency_key = randomUUID()
    const request_id = randomUUID()
    const body = { model: 'aurora-image', input: { prompt: 'x' }, key_name: 'live', metadata: { order: 2 } }
    stand.answer((_id, _req, res) =>
      answerJson(res, 200, {
        request_id,
        status: 'IN_QUEUE',
        queue_position: 1,
        status_url: `${stand.url}/s`,
        response_url: `${stand.url}/r`,
        cancel_url: `${stand.url}/c`,
        cost: 4,
      }),
    )
    const taken = await through('POST /api/generations', '/api/generations', { body: { ...body, idempotency_key } })
    expect(taken).toMatchObject({
      status: 202,
      json: { idempotency_key, request_id, state: 'submitted', metadata: { order: 2 } },
    })
    expect(
      await through('GET /api/generations/{idempotency_key}', `/api/generations/${idempotency_key}`),
    ).toMatchObject({
      status: 200,
      json: { request_id },
    })
    expect((await authorized(receiver, `GET /api/requests/${request_id}`)).json).toMatchObject({
      model: 'aurora-image',
      metadata: { order: 2 },
    })

    // The same as a header is the same submit, and so one charge.
    const again = { body, headers: { 'idempotency-key': idempotency_key } }
    expect(await through('POST /api/generations', '/api/generations', again)).toMatchObject({
      status: 202,
      json: { idempotency_key, request_id },
    })
    for (const headers of [
      { 'idempotency-key': randomUUID() },
      { 'idempotency-key': 'mine' },
      { 'idempotency-key': '' },
    ]) {
      const refused = await authorized(receiver, 'POST /api/generations', {
        body: { ...body, idempotency_key },
        headers,
      })
      expect(refused).toMatchObject({ status: 400, json: { error: { code: 'invalid_idempotency_key' } } })
    }

    stand.answer((_id, _req, res) =>
      answerJson(res, 402, { error: { type: 'insufficient_credits', code: 'insufficient_credits', message: 'no' } }),
    )
    expect(await through('POST /api/generations', '/api/generations', { body })).toMatchObject({
      status: 402,
      json: { error: { code: 'insufficient_credits' } },
    })
    stand.answer((_id, _req, res) => answerJson(res, 500, {}))
    expect(await through('POST /api/generations', '/api/generations', { body })).toMatchObject({
      status: 202,
      json: { request_id: null, state: 'pending' },
    })
    expect(await authorized(receiver, 'POST /api/generations', { body: { input: {} } })).toMatchObject({
      status: 400,
      json: { error: { code: 'invalid_body' } },
    })
    await through('GET /api/generations/{idempotency_key}', `/api/generations/${randomUUID()}`)
    expect(await authorized(receiver, 'GET /api/generations/x')).toMatchObject({ status: 404 })
  })

  it('reads of the provider and costs', async () => {
    const model = { slug: 'vela', type: 'video', name: 'Vela', capabilities: ['text-to-video'] }
    const answers = new Map<string, object>([
      ['/v1/models', { data: [{ ...model, pricing: { credits: 12 } }] }],
      ['/v1/models/vela', { ...model, input_schema: { prompt: { type: 'string' } }, pricing: { credits_base: 12 } }],
      ['/v1/models/vela/estimate', { credits: 12 }],
      ['/v1/account', { account_id: 'a', balance: { credits: 9 }, usage_30d: { requests: 1, credits_spent: 12 } }],
    ])
    stand.answer((_id, req, res) => answerJson(res, 200, answers.get(req.url ?? '')))
    for (const path of ['/api/models', '/api/account', '/api/costs'])
      expect(
        await through(`GET ${path}`, `${path}?${path === '/api/costs' ? 'by=model' : 'key_name=sandbox'}`),
      ).toMatchObject({
        status: 200,
      })
    expect(await through('GET /api/models/{model}', '/api/models/vela')).toMatchObject({ status: 200 })
    const where = '/api/models/vela/estimate'
    const body = { input: { prompt: 'a boat' } }
    expect(await through('POST /api/models/{model}/estimate', where, { body })).toMatchObject({ json: { credits: 12 } })
    stand.answer((id, _req, res) => answerJson(res, 200, imageResult(id, 2)))
  })

  it('called every operation', () => {
    expect(driven).toEqual(new Set(promised))
  })
})

describe('who may use it', () => {
  it('only holders of the token: every call answers 401 without it, in the envelope', async () => {
    for (const operation of promised) {
      const answer = await call(receiver, operation.replaceAll(/\{\w+\}/g, randomUUID()), {
        headers: { accept: 'application/json' },
      })
      expect(answer).toMatchObject({ status: 401, json: { error: { code: 'unauthorized' } } })
    }
    expect(await call(receiver, 'GET /api/stats', { headers: { authorization: `Bearer ${token}x` } })).toMatchObject({
      status: 401,
    })
  })

  it('no page of another site: its action, sent by a browser, is refused', async () => {
    const foreign = { headers: { origin: 'https://evil.test', 'sec-fetch-site': 'cross-site' } }
    expect(await authorized(receiver, 'POST /api/quarantine/verify', foreign)).toMatchObject({
      status: 403,
      json: { error: { code: 'cross_origin' } },
    })
  })

  it('shows no signature, key, secret or token in any answer', async () => {
    const signature = /v1=[0-9a-f]{64}/
    const secrets = [liveKey.api_key, liveKey.signing_secret, sandboxKey.api_key, sandboxKey.signing_secret, token]
    await deliver(receiver.webhookUrl, failed().body, {
      secret: 'whsec_unknown',
      headers: { 'x-api-key': liveKey.api_key, cookie: `s=${token}` },
    })
    const sample = failed()
    const id = await deliverAndSettle({ receiver, database }, sample, {
      webhookId: randomUUID(),
      headers: { authorization: `Bearer ${liveKey.api_key}`, cookie: `s=${token}` },
    })
    await eventually(
      async () =>
        (await database.sql`select from mediadock.quarantine where headers->>'x-service-signature' like 't=%'`).length >
        0,
    )
    const gets = promised
      .filter((operation) => operation.startsWith('GET'))
      .map((operation) =>
        operation
          .replace(/\{request_id\}/, sample.requestId)
          .replace(/search$/, `search?q=${sample.requestId}`)
          .replace(/costs$/, 'costs?by=model'),
      )
    const calls = [
      ...gets.filter((operation) => !operation.includes('{')),
      `GET /api/deliveries/${id}`,
      `GET /api/requests/${sample.requestId}`,
    ]
    for (const operation of calls) {
      const { status, text } = await authorized(receiver, operation)
      expect(status, operation).toBe(200)
      expect(text, operation).not.toMatch(signature)
      for (const secret of secrets) expect(text, operation).not.toContain(secret)
    }
  })
})
