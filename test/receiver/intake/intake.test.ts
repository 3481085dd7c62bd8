import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import http from 'node:http'
import net from 'node:net'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { createBodyReader } from '../../../src/receiver/intake/body-reader.ts'
import { Refusal } from '../../../src/receiver/intake/webhook-answers.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { keysOf, liveKey, sandboxKey, type TestReceiver } from '../../support/receiver.ts'
import { deliver, failed, headersFor } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

const mebibyte = 1_048_576
let database: TestDatabase
let receiver: TestReceiver

beforeAll(async () => {
  const its = await withReceiver()
  ;({ database, receiver } = its)
  return its.stop
})

/** A connection that sends what it is given and keeps what comes back. */
async function connection() {
  const socket = net.connect(Number(new URL(receiver.webhookUrl).port), '127.0.0.1')
  const came = { text: '' }
  socket.on('error', () => {}).on('data', (chunk) => (came.text += chunk.toString()))
  onTestFinished(() => void socket.destroy())
  await once(socket, 'connect')
  return { socket, came, send: (text: string | Buffer) => socket.write(text) }
}

function head(headers: Record<string, string>): string {
  return [
    'POST /webhooks HTTP/1.1',
    'host: x',
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
    '',
    '',
  ].join('\r\n')
}

function inPieces(body: Buffer): string {
  return Array.from(body, (byte) => `1\r\n${String.fromCharCode(byte)}\r\n`).join('') + '0\r\n\r\n'
}

function padded(body: Buffer, length: number): Buffer {
  return Buffer.concat([body, Buffer.alloc(length - body.length, ' ')])
}

function reasonOf(webhookId: string): Promise<string> {
  return eventually(async () => {
    const [row] = await database.sql`select reason from mediadock.arrivals where webhook_id = ${webhookId}`
    return row?.['reason']
  })
}

describe('a body in pieces of one byte', () => {
  it('is aborted early with 413 and a closed connection', async () => {
    const webhookId = randomUUID()
    const { socket, came, send } = await connection()
    send(head({ 'transfer-encoding': 'chunked', 'x-service-webhook-id': webhookId }))
    const pieces = inPieces(Buffer.alloc(mebibyte, 'x'))
    for (let at = 0; at < pieces.length && !socket.destroyed; at += 60_000) {
      send(pieces.slice(at, at + 60_000))
      await new Promise((resolve) => setImmediate(resolve))
    }
    await eventually(() => socket.destroyed, 5000)
    expect(came.text).toMatch(/^HTTP\/1.1 413 /)
    expect(came.text).toMatch(/connection: close/i)
    expect(came.text).toContain('payload_too_large')
    expect(await reasonOf(webhookId)).toBe('too_many_chunks')
  })

  it('is accepted if it is small', async () => {
    const { body } = failed()
    const { came, send } = await connection()
    send(head({ 'transfer-encoding': 'chunked', ...headersFor(body) }) + inPieces(body))
    await eventually(() => came.text.includes('accepted'))
  })
})

describe('Expect', () => {
  it('100-continue with a length above the limit: 413 at once, without a body', async () => {
    const { came, send, socket } = await connection()
    send(head({ 'content-length': '1000000000', expect: '100-continue' }))
    await eventually(() => came.text.includes('payload_too_large'))
    expect(came.text).toMatch(/^HTTP\/1.1 413 /)
    expect(came.text).toMatch(/connection: close/i)
    await eventually(() => socket.destroyed, 5000)
  })

  it('100-continue with an allowed length: 100, then the answer', async () => {
    const { body } = failed()
    const { came, send } = await connection()
    send(head({ 'content-length': String(body.length), expect: '100-continue', ...headersFor(body) }))
    await eventually(() => came.text === 'HTTP/1.1 100 Continue\r\n\r\n')
    send(body)
    await eventually(() => came.text.includes('accepted'))
  })

  it('100-continue, and SIGHUP removes the key before the body: has the environment of that key', async () => {
    const { body } = failed()
    const webhookId = randomUUID()
    const { came, send } = await connection()
    send(head({ 'content-length': String(body.length), expect: '100-continue', ...headersFor(body, { webhookId }) }))
    await eventually(() => came.text === 'HTTP/1.1 100 Continue\r\n\r\n')
    receiver.setKeys(keysOf(sandboxKey))
    onTestFinished(() => receiver.setKeys(keysOf(liveKey, sandboxKey)))
    send(body)
    await eventually(() => came.text.includes('accepted'))
    const rows = await database.sql`select environment from mediadock.deliveries where webhook_id = ${webhookId}`
    expect(rows).toEqual([{ environment: 'live' }])
  })

  it('anything else: 417 in the envelope', async () => {
    const { came, send } = await connection()
    send(head({ 'content-length': '2', expect: 'a miracle' }))
    await eventually(() => came.text.includes('expectation_failed'))
    expect(came.text).toMatch(/^HTTP\/1.1 417 /)
  })
})

describe('senders that hold large bodies open', () => {
  it(
    'are disconnected beyond a budget, while deliveries are accepted, large ones too',
    { timeout: 120_000 },
    async () => {
      const { body } = failed()
      const held = Buffer.alloc(mebibyte - 1, 'x')
      const holders = await Promise.all(Array.from({ length: 120 }, connection))
      for (const { send } of holders) {
        send(head({ 'content-length': String(mebibyte) }))
        send(held)
      }
      const answered = (status: number) =>
        holders.filter(({ came }) => came.text.startsWith(`HTTP/1.1 ${status} `)).length
      await eventually(() => answered(503) + answered(408) >= 120 - 66)
      for (const { came } of holders)
        if (came.text.startsWith('HTTP/1.1 503 ')) expect(came.text).toMatch(/retry-after: 5/i)
      expect((await deliver(receiver.webhookUrl, padded(failed().body, 16_000))).status).toBe(200)
      // It takes the place of one that does not come on.
      await eventually(async () => (await deliver(receiver.webhookUrl, padded(body, mebibyte))).status === 200)
    },
  )
})

describe('an authentic delivery is answered, also if its sender then', () => {
  const message = () => {
    const { body } = failed()
    return head({ 'content-length': String(body.length), ...headersFor(body) }) + body.toString()
  }

  it('closes its side of the connection', async () => {
    const { came, socket } = await connection()
    socket.end(message())
    await eventually(() => socket.destroyed)
    expect(came.text).toMatch(/^HTTP\/1.1 200 [\s\S]*"accepted"/)
  })

  it('sends garbage, which gets a separate later answer, and is counted', async () => {
    const { came, send, socket } = await connection()
    send(`${message()}no HTTP at all\r\n\r\n`)
    await eventually(() => socket.destroyed)
    expect(came.text.match(/HTTP\/1.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 400'])
    expect(await receiver.deps.registry.metrics()).toMatch(
      /mediadock_connections_closed_total\{reason="bad_request"\} [1-9]/,
    )
  })

  it('uses an absolute URL; an invalid URL gets the envelope', async () => {
    const whole = await connection()
    whole.send(message().replace('/webhooks', 'http://x/webhooks'))
    await eventually(() => whole.came.text.includes('"accepted"'))
    const bad = await connection()
    bad.send(message().replace('/webhooks', 'http://[bad/webhooks'))
    await eventually(() => bad.came.text.includes('"bad_request"'))
  })
})

it('large bodies in verification leave room for ordinary ones', async () => {
  const reader = createBodyReader({ maxBodyBytes: mebibyte })
  const ends: string[] = []
  // Never released: as if verifying all of them took long.
  const server = http.createServer((req, res) => {
    reader
      .read(req, res)
      .then(
        ({ body }) => ends.push(`${body.length} whole`),
        (error: unknown) => ends.push(error instanceof Refusal ? error.reason : String(error)),
      )
      .finally(() => res.end())
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  onTestFinished(() => void server.close())
  const address = server.address()
  const url = `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`
  const post = async (length: number) => (await fetch(url, { method: 'POST', body: Buffer.alloc(length, 'x') })).text()
  await Promise.all(Array.from({ length: 75 }, () => post(mebibyte)))
  await Promise.all(Array.from({ length: 60 }, () => post(30_000)))
  const counted = (end: string) => ends.filter((one) => one === end).length
  expect([counted('30000 whole'), counted(`${mebibyte} whole`) > 50, counted('too_much_being_received') > 10]).toEqual([
    60,
    true,
    true,
  ])
})
