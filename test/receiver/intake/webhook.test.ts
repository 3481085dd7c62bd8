import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import net from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import express from 'express'
import request from 'supertest'
import { beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { mountWebhooks } from '../../../src/receiver/intake/webhook.ts'
import { watchedLogger } from '../../platform/support/watched-logger.ts'
import { type TestDatabase, withTestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { send } from '../../support/http.ts'
import { sandboxKey, startTestReceiver, type TestReceiver } from '../../support/receiver.ts'
import { deliver, failed, headersFor, nowSeconds, okAudio } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

let database: TestDatabase
let receiver: TestReceiver

beforeAll(async () => {
  const its = await withReceiver({ settings: { maxBodyBytes: 64 * 1024 } })
  ;({ database, receiver } = its)
  return its.stop
})

async function deliveriesOf(webhookId: string) {
  return database.sql`select * from mediadock.deliveries where webhook_id = ${webhookId}`
}

/** The row of the arrival log under the id that it states. */
function arrivalOf(webhookId: string) {
  return eventually(async () => {
    const [row] =
      await database.sql`select * from mediadock.arrivals where webhook_id = ${webhookId} order by id desc limit 1`
    return row
  })
}

/** Sends bytes as they are and answers all that comes back until the server closes or answers whole. */
async function raw(text: string | Buffer, { keepOpen = false } = {}): Promise<string> {
  const { port, hostname } = new URL(receiver.webhookUrl)
  const socket = net.connect(Number(port), hostname === 'localhost' ? '127.0.0.1' : hostname)
  await once(socket, 'connect')
  socket.write(text)
  if (!keepOpen) socket.end()
  let answer = ''
  socket.on('data', (chunk) => (answer += chunk.toString()))
  socket.on('error', () => {})
  await eventually(() => /\r\n\r\n[\s\S]*\}/.test(answer) || socket.closed)
  socket.destroy()
  return answer
}

describe('an authentic delivery', () => {
  it('is answered 200 accepted after its bytes are in deliveries', async () => {
    const { body, requestId } = okAudio()
    const webhookId = randomUUID()
    const answer = await deliver(receiver.webhookUrl, body, { webhookId })
    expect(answer).toMatchObject({ status: 200, json: { status: 'accepted' } })
    const [row, ...more] = await deliveriesOf(webhookId)
    expect(more).toEqual([])
    expect(row).toMatchObject({ request_id: requestId, key_name: 'live', status: 'OK', parked_reason: null, flags: [] })
    expect(row?.['body'].equals(body)).toBe(true)
    expect(row?.['headers']['x-service-signature']).toBe('[redacted]')
    expect(await arrivalOf(webhookId)).toMatchObject({
      outcome: 'accepted',
      status: 200,
      request_id: requestId,
      bytes: body.length,
    })
  })

  it('is answered 200 duplicate if id and bytes were stored before', async () => {
    const { body } = failed()
    const webhookId = randomUUID()
    await deliver(receiver.webhookUrl, body, { webhookId })
    const again = await deliver(receiver.webhookUrl, body, { webhookId, t: nowSeconds() - 30 })
    expect(again).toMatchObject({ status: 200, json: { status: 'duplicate' } })
    expect(await deliveriesOf(webhookId)).toHaveLength(1)
  })

  it('is kept and flagged if its id was used for another body', async () => {
    const webhookId = randomUUID()
    await deliver(receiver.webhookUrl, failed().body, { webhookId })
    const other = await deliver(receiver.webhookUrl, failed().body, { webhookId })
    expect(other.json).toEqual({ status: 'accepted' })
    await eventually(async () => {
      const rows =
        await database.sql`select flags from mediadock.deliveries where webhook_id = ${webhookId} order by received_at`
      expect(rows.map((row) => row['flags'])).toEqual([[], ['id_reused']])
      return true
    })
  })

  it.each([0, 999])(
    'is accepted with a timestamp 300 s old and 300 s ahead, %i ms after the second, but not 301 s, with any Content-Type',
    async (ms) => {
      const second = nowSeconds()
      receiver.setNow(new Date(second * 1000 + ms))
      onTestFinished(() => receiver.setNow(undefined))
      const headers = { 'content-type': 'text/plain' }
      const statuses = await Promise.all(
        [-301, -300, 300, 301].map(
          async (skew) => (await deliver(receiver.webhookUrl, failed().body, { t: second + skew, headers })).status,
        ),
      )
      expect(statuses).toEqual([401, 200, 200, 401])
    },
  )

  it('is accepted and counted if X-Service-Timestamp differs from t', async () => {
    const { body } = failed()
    const answer = await deliver(receiver.webhookUrl, body, { headers: { 'x-service-timestamp': '1' } })
    expect(answer.status).toBe(200)
    const { text: metrics } = await request(receiver.internalUrl).get('metrics')
    expect(metrics).toMatch(/mediadock_timestamp_mismatch_total 1/)
  })

  it('is accepted from any configured key', async () => {
    const webhookId = randomUUID()
    await deliver(receiver.webhookUrl, failed().body, { webhookId, secret: sandboxKey.signing_secret })
    expect((await deliveriesOf(webhookId))[0]).toMatchObject({ key_name: 'sandbox' })
  })
})

describe('a request that is not a delivery', () => {
  it.each(['GET', 'HEAD', 'PUT', 'DELETE', 'OPTIONS', 'PATCH'])('%s /webhooks: 405 with Allow', async (method) => {
    const response = await send(receiver.webhookUrl, method)
    expect(response.status).toBe(405)
    expect(response.headers.get('allow')).toBe('POST')
    if (method !== 'HEAD') expect(JSON.parse(response.text)).toMatchObject({ error: { code: 'method_not_allowed' } })
  })

  it.each(['/', '/webhook', '/webhooks/', '/Webhooks', '/api/stats', '/metrics', '/webhooks/x', '/%'])(
    'another path (%s): 404',
    async (path) => {
      const response = await request(new URL(path, receiver.webhookUrl).href).post('')
      expect(response.status).toBe(404)
      expect(response.body).toMatchObject({ error: { code: 'not_found' } })
    },
  )

  it('a body at the limit is accepted', async () => {
    const { body } = failed()
    const padded = Buffer.concat([body, Buffer.alloc(64 * 1024 - body.length, ' ')])
    expect((await deliver(receiver.webhookUrl, padded)).json).toEqual({ status: 'accepted' })
  })

  // Beside one another: they wait for as long as a sender may take.
  it.concurrent.each([
    ['headers that take longer than 10 s', ''],
    ['a body that takes longer than 30 s', 'content-length: 5\r\nx-service-webhook-id: slow\r\n\r\n{'],
  ])('%s: 408', async (_what, rest) => {
    const answer = await raw(`POST /webhooks HTTP/1.1\r\nhost: x\r\n${rest}`, { keepOpen: true })
    expect(answer).toMatch(/^HTTP\/1.1 408 /)
  })

  it.concurrent(
    'a connection without a request for 10 s: closed without an answer, and counted',
    { timeout: 120_000 },
    async () => {
      expect(await raw('', { keepOpen: true })).toBe('')
      const { text: metrics } = await request(receiver.internalUrl).get('metrics')
      expect(metrics).toMatch(/mediadock_connections_closed_total\{reason="unused"\} 1/)
    },
  )

  it('a sender that disconnects within the body leaves only a log line', async () => {
    const { body } = failed()
    const webhookId = randomUUID()
    const lines = Object.entries(headersFor(body, { webhookId })).map(([name, value]) => `${name}: ${value}`)
    const { port } = new URL(receiver.webhookUrl)
    const socket = net.connect(Number(port), '127.0.0.1')
    await once(socket, 'connect')
    socket.write(
      `POST /webhooks HTTP/1.1\r\nhost: x\r\ncontent-length: ${body.length}\r\n${lines.join('\r\n')}\r\n\r\n{"`,
    )
    await delay(50)
    socket.destroy()
    expect(await arrivalOf(webhookId)).toMatchObject({ outcome: 'refused', reason: 'aborted' })
    expect(await deliveriesOf(webhookId)).toHaveLength(0)
  })
})

describe('health', () => {
  it('answers 200 on both listeners while Postgres answers', async () => {
    for (const base of [new URL('/', receiver.webhookUrl).href, receiver.internalUrl]) {
      await request(base).get('healthz').expect(200)
      await request(base).get('readyz').expect(200)
    }
  })
})

it('answers 503 on an internal error, counts it, and logs its stack', async () => {
  const { url } = await withTestDatabase()
  const { logger, lines } = watchedLogger()
  const faulty = await startTestReceiver({ databaseUrl: url, logger })
  onTestFinished(() => faulty.stop())
  const keys = faulty.deps.keys()
  const defaultSource = Object.defineProperty({ ...keys.defaultSource }, 'secrets', {
    get: () => {
      throw new TypeError('a bug in the hot path')
    },
  })
  faulty.setKeys({ ...keys, defaultSource })
  const webhookId = randomUUID()
  const answer = await deliver(faulty.webhookUrl, failed().body, { webhookId })
  expect(answer).toMatchObject({ status: 503, json: { error: { code: 'unavailable' } } })
  expect(JSON.stringify(answer.json)).not.toContain('bug')
  const faults = () =>
    lines()
      .map((line) => JSON.parse(line))
      .filter(({ msg }) => msg === 'internal error: a delivery was not acknowledged')
  expect(faults()).toMatchObject([
    { level: 50, webhook_id: webhookId, err: { type: 'TypeError', stack: expect.stringContaining('webhook.test.ts') } },
  ])
  const { text: metrics } = await request(faulty.internalUrl).get('metrics')
  expect(metrics).toMatch(/^mediadock_arrivals_total\{outcome="unavailable",reason="internal_error"\} 1$/m)
})

it('logs the first 200 internal errors of a flood, then 20 a second', async () => {
  vi.useFakeTimers({ toFake: ['performance'] })
  onTestFinished(() => void vi.useRealTimers())
  const { logger, lines } = watchedLogger()
  const app = express()
  mountWebhooks(app, {
    keys: receiver.deps.keys,
    acceptor: { accept: () => Promise.reject(new TypeError('a bug in the hot path')) },
    arrivalLog: { record: () => false },
    quarantine: { record: () => {} },
    traces: undefined,
    maxBodyBytes: 65_536,
    clock: () => new Date(),
    logger,
    onUnknownKey: () => {},
    onUnsigned: () => {},
  })
  const headers = headersFor(Buffer.from('{}'))
  const send503 = () => request(app).post('/webhooks').set(headers).send('{}').expect(503)
  await Promise.all(Array.from({ length: 210 }, send503))
  expect(lines()).toHaveLength(200)
  vi.advanceTimersByTime(1000)
  await Promise.all(Array.from({ length: 25 }, send503))
  expect(lines()).toHaveLength(220)
})
