import { once } from 'node:events'
import http from 'node:http'
import net from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { pino } from 'pino'
import { boundConnections, proveConnection } from '../../src/runtime/connections.ts'
import { listen } from '../../src/runtime/http.ts'
import { createLineBudget } from '../../src/runtime/line-budget.ts'
import { eventually } from '../support/eventually.ts'

async function connect(port: number) {
  const socket = net.connect(port, '127.0.0.1').on('error', () => {})
  const came = { text: '' }
  socket.on('data', (chunk) => (came.text += chunk.toString()))
  onTestFinished(() => void socket.destroy())
  await once(socket, 'connect')
  return { socket, came, ask: (times = 1) => socket.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n'.repeat(times)) }
}

it('beyond its bound a listener closes the oldest connection that has brought nothing wanted', async () => {
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

it('closes a connection that sends request upon request without waiting for answers, and takes a few that come together', async () => {
  let handled = 0
  const handler: http.RequestListener = (_req, res) => {
    handled += 1
    res.end('{"done":1}')
  }
  const listener = await listen({ handler, host: '127.0.0.1', port: 0, setting: 'PORT', logger: pino({ level: 'silent' }) })
  onTestFinished(() => listener.close(0))
  const few = await connect(listener.port)
  few.ask(8)
  await eventually(() => few.came.text.split('{"done":1}').length === 9)
  handled = 0
  const many = await connect(listener.port)
  many.ask(2000)
  await eventually(() => many.socket.destroyed)
  expect(handled).toBeLessThan(100)
})

it('lets so many lines through, and says how many it left out', async () => {
  const lines: string[] = []
  const logger = pino({ base: null }, { write: (line) => lines.push(line) })
  const mayTell = createLineBudget({ logger, what: 'refused requests', tellAfterMs: 20 })
  const told = Array.from({ length: 5000 }, () => mayTell()).filter(Boolean).length
  expect(told).toBeGreaterThan(100)
  expect(told).toBeLessThan(1000)
  await eventually(() => lines.length === 1)
  expect(lines[0]).toContain(`"left_out":${5000 - told}`)
})
