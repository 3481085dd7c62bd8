import { once } from 'node:events'
import type http from 'node:http'
import net from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { pino } from 'pino'
import { expect, it, onTestFinished } from 'vitest'
import { listen } from '../../../src/platform/http/http.ts'
import { eventually } from '../../support/eventually.ts'

const logger = pino({ level: 'silent' })
const request = 'POST /webhooks HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n'

async function startListener(keepAliveSeconds = 75) {
  const retired = new AbortController()
  const waiting: http.ServerResponse[] = []
  const handler: http.RequestListener = (req, res) => {
    if (req.url === '/slow') waiting.push(res)
    else res.end('ok')
  }
  const listener = await listen({
    handler,
    host: '127.0.0.1',
    port: 0,
    setting: 'PORT',
    logger,
    keepAliveSeconds,
    retired: retired.signal,
  })
  onTestFinished(() => listener.close(0))
  return { listener, retired, waiting }
}

function connect(port: number, text: string) {
  const socket = net.connect(port, '127.0.0.1')
  const one = { socket, came: '', isOver: false, isReset: false }
  socket.on('data', (chunk) => (one.came += chunk.toString()))
  socket.on('end', () => (one.isOver = true))
  socket.on('error', () => (one.isReset = true))
  socket.write(text)
  onTestFinished(() => void socket.destroy())
  return one
}

it('after retire(), it accepts connections, closes each after its answer, and keeps idle ones open', async () => {
  const { listener, retired, waiting } = await startListener()
  const [idle, used] = [connect(listener.port, request), connect(listener.port, request)]
  const underWay = connect(listener.port, request.replace('/webhooks', '/slow'))
  await eventually(() => idle.came.includes('ok') && used.came.includes('ok') && waiting.length === 1)
  expect(idle.came).toContain('Connection: keep-alive')
  retired.abort()

  waiting[0]?.end('late')
  used.came = ''
  used.socket.write(request)
  const fresh = connect(listener.port, request)
  await eventually(() => [underWay, used, fresh].every(({ isOver }) => isOver))
  for (const { came } of [underWay, used, fresh]) expect(came).toContain('Connection: close')
  expect(underWay.came).toContain('late')
  expect(idle.isOver).toBe(false)
})

it('on close, it first answers connections that the system has already accepted', async () => {
  const { listener } = await startListener()
  const all = Array.from({ length: 40 }, () => connect(listener.port, request))
  // The handshakes are over, and none has been accepted yet.
  await new Promise<void>((resolve) => {
    process.nextTick(resolve)
  })
  await listener.close(2000)
  await nextTurn()
  await eventually(() => all.every(({ isOver, isReset }) => isOver || isReset))
  expect(all.filter(({ came }) => came.includes('ok'))).toHaveLength(40)
})

it('keeps an idle connection for the configured time, and announces that time', async () => {
  const { listener } = await startListener(1)
  const one = connect(listener.port, request)
  const began = performance.now()
  await once(one.socket, 'end')
  expect(one.came).toContain('Keep-Alive: timeout=1')
  expect(performance.now() - began).toBeGreaterThan(900)
})
