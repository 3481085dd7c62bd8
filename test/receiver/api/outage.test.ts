import { once } from 'node:events'
import net from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { createLogger } from '../../../src/platform/logger.ts'
import { asHttpError } from '../../../src/receiver/api/operation.ts'
import { withTestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { startTestReceiver } from '../../support/receiver.ts'
import { call } from './calls.ts'

/** A way to Postgres that can be cut and opened again, or frozen. */
async function openGate(url: string) {
  const to = new URL(url)
  const target = { host: to.hostname, port: Number(to.port) }
  const sockets = new Set<net.Socket>()
  let isFrozen = false
  const server = net.createServer((inside) => {
    const outside = net.connect(target)
    for (const socket of [inside, outside]) {
      sockets.add(socket)
      socket.on('error', () => {}).on('close', () => [inside, outside].forEach((each) => each.destroy()))
    }
    if (!isFrozen) inside.pipe(outside).pipe(inside)
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
  return { url: String(to), close, freeze, open: () => listen(port) }
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

it('does not ask for a narrower query if Postgres is frozen', async () => {
  const database = await withTestDatabase()
  const gate = await openGate(database.url)
  const receiver = await startTestReceiver({ databaseUrl: gate.url })
  onTestFinished(async () => {
    await gate.close()
    await receiver.stop()
  })
  gate.freeze()
  const message = 'Postgres gave no answer within 5 s: check that it is neither frozen nor overloaded'
  expect(await call(receiver, 'GET /api/stats')).toMatchObject({
    status: 503,
    json: { error: { code: 'query_timeout', message } },
  })
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
