import { once } from 'node:events'
import fs from 'node:fs'
import http from 'node:http'
import net from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { pino } from 'pino'
import { expect, it, onTestFinished } from 'vitest'
import { boundConnections, proveConnection } from '../../../src/platform/http/connections.ts'
import { listen } from '../../../src/platform/http/http.ts'
import { createLineBudget } from '../../../src/platform/line-budget.ts'
import { eventually } from '../../support/eventually.ts'

async function connect(port: number) {
  const socket = net.connect(port, '127.0.0.1').on('error', () => {})
  const came = { text: '' }
  socket.on('data', (chunk) => (came.text += chunk.toString()))
  onTestFinished(() => void socket.destroy())
  await once(socket, 'connect')
  return { socket, came, ask: (times = 1) => socket.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n'.repeat(times)) }
}

it('beyond its bound, a listener closes the oldest connection without an authentic request', async () => {
  const server = http.createServer((req, res) => {
    proveConnection(req.socket)
    res.end('ok')
  })
  boundConnections(server, { max: 3 })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  const address = server.address()
  const port = typeof address === 'object' && address ? address.port : 0
  const proven = await connect(port)
  proven.ask()
  await eventually(() => proven.came.text.includes('ok'))
  const idle = [await connect(port), await connect(port), await connect(port), await connect(port)]
  await eventually(() => idle[0]?.socket.destroyed === true && idle[1]?.socket.destroyed === true)
  expect([proven, idle[2], idle[3]].map((one) => one?.socket.destroyed)).toEqual([false, false, false])
})

it('closes a connection with many unanswered requests, and accepts a few at once', async () => {
  let handled = 0
  const handler: http.RequestListener = (_req, res) => {
    handled += 1
    res.end('{"done":1}')
  }
  const listener = await listen({
    handler,
    host: '127.0.0.1',
    port: 0,
    setting: 'PORT',
    logger: pino({ level: 'silent' }),
  })
  onTestFinished(() => listener.close(0))
  const few = await connect(listener.port)
  few.ask(4)
  await eventually(() => few.came.text.split('{"done":1}').length === 5)
  handled = 0
  const many = await connect(listener.port)
  many.ask(2000)
  await eventually(() => many.socket.destroyed)
  expect(handled).toBeLessThan(100)
})

const backlogFile = '/proc/sys/net/core/somaxconn'
const maxBacklog = fs.existsSync(backlogFile) ? Number(fs.readFileSync(backlogFile, 'utf8')) : 0

it.skipIf(maxBacklog < 2000)('queues 1,500 simultaneous connections instead of refusing them', async () => {
  const listener = await listen({
    handler: (_req, res) => res.end(),
    host: '127.0.0.1',
    port: 0,
    setting: 'PORT',
    logger: pino({ level: 'silent' }),
  })
  onTestFinished(() => listener.close(0))
  let connected = 0
  const sockets = Array.from({ length: 1500 }, () =>
    net
      .connect(listener.port, '127.0.0.1')
      .on('error', () => {})
      .once('connect', () => (connected += 1)),
  )
  onTestFinished(() => sockets.forEach((socket) => socket.destroy()))
  // Each turn takes in one of them; the kernel keeps the others. Who is turned away tries again after a second.
  for (let n = 0; n < 100; n += 1) await nextTurn()
  expect(connected).toBe(1500)
})

it('logs a bounded number of lines, and reports how many it dropped', async () => {
  const lines: string[] = []
  const logger = pino({ base: null }, { write: (line) => lines.push(line) })
  const mayLog = createLineBudget({ logger, what: 'refused requests', reportAfterMs: 20 })
  const written = Array.from({ length: 5000 }, () => mayLog()).filter(Boolean).length
  expect(written).toBeGreaterThan(100)
  expect(written).toBeLessThan(1000)
  await eventually(() => lines.length === 1)
  expect(lines[0]).toContain(`"left_out":${5000 - written}`)
})
