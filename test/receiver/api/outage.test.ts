import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import net from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { createLogger } from '../../../src/platform/logger.ts'
import { asHttpError } from '../../../src/receiver/api/operation.ts'
import { withTestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { json, startProviderStand } from '../../support/provider-stand.ts'
import { startTestReceiver } from '../../support/receiver.ts'
import { call } from './calls.ts'

/** A way to Postgres that can be cut and opened again, or frozen. */
async function openGate(url: string) {
  const to = new URL(url)
  const target = { host: to.hostname, port: Number(to.port) }
  const sockets = new Set<net.Socket>()
  const pairs = new Set<() => void>()
  let isFrozen = false
  const server = net.createServer((inside) => {
    const outside = net.connect(target)
    for (const socket of [inside, outside]) {
      sockets.add(socket)
      socket.on('error', () => {}).on('close', () => [inside, outside].forEach((each) => each.destroy()))
    }
    const flow = () => void inside.pipe(outside).pipe(inside)
    pairs.add(flow)
    if (!isFrozen) flow()
  })
  const listen = async (port: number) => {
    server.listen(port, '127.0.0.1')
    await once(server, 'listening')
  }
  await listen(0)
  const address = server.address()
  const port = typeof address === 'object' && address !== null ? address.port : 0
  to.hostname = '127.0.0.1'
  to.port = String(port)
  const close = async () => {
    for (const socket of sockets) socket.destroy()
    if (server.listening) server.close()
  }
  const freeze = () => {
    isFrozen = true
    for (const socket of sockets) socket.unpipe().pause()
  }
  const thaw = () => {
    isFrozen = false
    for (const flow of pairs) flow()
  }
  return { url: String(to), close, freeze, thaw, open: () => listen(port) }
}

it('answers 503 while Postgres is unreachable, and works afterwards', async () => {
  const database = await withTestDatabase()
  const gate = await openGate(database.url)
  const receiver = await startTestReceiver({ databaseUrl: gate.url })
  onTestFinished(async () => {
    await receiver.stop()
    await gate.close()
  })
  // More than the pool has connections, so that each has been used and lost once.
  await Promise.all(Array.from({ length: 20 }, () => call(receiver, 'GET /api/deliveries')))
  await gate.close()
  for (const path of ['/api/deliveries', '/api/arrivals', '/api/stats', '/api/requests']) {
    const { status, json, headers } = await call(receiver, `GET ${path}`)
    expect({ path, status, error: json.error, retry: headers.get('retry-after') }).toEqual({
      path,
      status: 503,
      error: { type: 'api_error', code: 'unavailable', message: 'Postgres cannot be reached' },
      retry: '1',
    })
  }
  await gate.open()
  await eventually(async () => (await call(receiver, 'GET /api/deliveries')).status === 200)
  const answers = await Promise.all(Array.from({ length: 20 }, () => call(receiver, 'GET /api/deliveries')))
  expect(answers.map(({ status }) => status)).toEqual(Array(20).fill(200))
})

/** Starts a receiver, and freezes its Postgres. */
async function startFrozen() {
  const database = await withTestDatabase()
  const gate = await openGate(database.url)
  const receiver = await startTestReceiver({ databaseUrl: gate.url })
  onTestFinished(async () => {
    await gate.close()
    await receiver.stop()
  })
  gate.freeze()
  return receiver
}

it('does not ask for a narrower query if Postgres is frozen', async () => {
  const receiver = await startFrozen()
  const message = 'Postgres gave no answer within 5 s: check that it is neither frozen nor overloaded'
  expect(await call(receiver, 'GET /api/stats')).toMatchObject({
    status: 503,
    json: { error: { code: 'query_timeout', message } },
  })
})

it('answers every short call in time while Postgres is frozen', async () => {
  const receiver = await startFrozen()
  const id = randomUUID()
  const calls: [string, object?][] = [
    [`GET /api/generations/${id}`],
    [`GET /api/results/${id}`],
    ['POST /api/requests', { request_id: id }],
    [`POST /api/requests/${id}/reconcile`],
    [`POST /api/requests/${id}/cancel`],
    [`POST /api/deliveries/${id}/replay`],
    ['POST /api/issues/1/mute', { minutes: 1 }],
    ['POST /api/subscriptions', { name: 'gallery', url: 'https://gallery.test/changes' }],
    ['POST /api/subscriptions/gallery/pause'],
  ]
  const answers = calls.map(async ([what, body]) => {
    const startedMs = performance.now()
    const { status } = await call(receiver, what, body && { body })
    return { what, status, isInTime: performance.now() - startedMs < 6500 }
  })
  expect(await Promise.all(answers)).toEqual(calls.map(([what]) => ({ what, status: 503, isInTime: true })))
})

it('answers a submit in time while Postgres is frozen, and charges once for its repetitions', async () => {
  const database = await withTestDatabase()
  const gate = await openGate(database.url)
  const stand = await startProviderStand()
  const charged = new Map<unknown, string>()
  stand.answer((_id, req, res) => {
    if (req.method !== 'POST') return json(res, 404, { error: { type: 'x', code: 'not_found', message: 'unknown' } })
    const { 'idempotency-key': key } = req.headers
    // The first call freezes Postgres before its answer can be recorded.
    if (charged.size === 0) gate.freeze()
    const id = charged.get(key) ?? randomUUID()
    charged.set(key, id)
    const urls = { status_url: stand.url, response_url: stand.url, cancel_url: stand.url }
    json(res, 200, { request_id: id, status: 'IN_QUEUE', queue_position: 0, cost: 4, ...urls })
  })
  const receiver = await startTestReceiver({ databaseUrl: gate.url, providerUrl: stand.url })
  onTestFinished(async () => {
    await gate.close()
    await receiver.stop()
    await stand.close()
  })
  const body = { model: 'aurora-image', input: { prompt: 'a lighthouse' } }
  const submit = async (key?: string) => {
    const startedMs = performance.now()
    const answer = await call(receiver, 'POST /api/generations', {
      body: { ...body, ...(key && { idempotency_key: key }) },
    })
    return { ...answer, seconds: (performance.now() - startedMs) / 1000 }
  }
  const own = randomUUID()
  const asked = submit(own)
  await eventually(() => charged.size === 1)
  const withoutKey = await submit()
  expect(withoutKey).toMatchObject({ status: 503, json: { error: { code: 'unavailable' } } })
  expect(withoutKey.headers.get('retry-after')).toBe('1')
  expect(withoutKey.seconds).toBeLessThan(6)
  const [made] = /(?<=send it again with the idempotency_key )[0-9a-f-]{36}/.exec(withoutKey.json.error.message) ?? []
  const late = await asked
  expect(late).toMatchObject({ status: 503, json: { error: { message: expect.stringContaining(own) } } })
  expect(late.seconds).toBeLessThan(16)
  gate.thaw()
  for (const key of [own, made ?? expect.fail()]) {
    await eventually(async () => (await submit(key)).json.request_id === (charged.get(key) ?? ''))
  }
  expect([...charged.keys()]).toEqual([own, made])
})

it('answers 503 with the words of a Postgres that lacks connections or space', () => {
  const full = Object.assign(new Error('sorry, too many clients already'), { name: 'PostgresError', code: '53300' })
  expect(asHttpError(full, createLogger('silent'))).toMatchObject({
    status: 503,
    code: 'unavailable',
    message: expect.stringMatching(/^Postgres says: sorry, too many clients already \(53300\): raise max_connections/),
    headers: { 'retry-after': '1' },
  })
})
