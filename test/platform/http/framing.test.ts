import { once } from 'node:events'
import type http from 'node:http'
import net from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { pino } from 'pino'
import { describe, expect, it, onTestFinished } from 'vitest'
import { proveConnection } from '../../../src/platform/http/connections.ts'
import { listen, type ListenOptions } from '../../../src/platform/http/http.ts'
import { withHealth } from '../../../src/platform/http/readiness.ts'
import { eventually } from '../../support/eventually.ts'

type Handled = { urls: string[]; held: (() => void)[]; closed: string[]; port: number }

/** Answers each path with itself; `/held` when it is let go, `/body` after its body, `/proven` is wanted. */
async function startListener(more: Partial<ListenOptions> = {}): Promise<Handled> {
  const handled: Handled = { urls: [], held: [], closed: [], port: 0 }
  const handler: http.RequestListener = (req, res) => {
    const { url = '' } = req
    handled.urls.push(url)
    const answer = () => res.end(`<${url}>`)
    if (url.startsWith('/proven')) proveConnection(req.socket)
    if (url.startsWith('/held')) handled.held.push(answer)
    else if (url === '/body') req.on('end', answer).resume()
    else answer()
  }
  const listener = await listen({
    handler: withHealth(handler, () => true),
    host: '127.0.0.1',
    port: 0,
    setting: 'PORT',
    logger: pino({ level: 'silent' }),
    onClosed: (reason) => handled.closed.push(reason),
    ...more,
  })
  onTestFinished(() => listener.close(0))
  return { ...handled, port: listener.port }
}

async function connect(port: number) {
  const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true, noDelay: true }).on('error', () => {})
  const came = { text: '', isOver: false }
  socket
    .on('data', (chunk) => (came.text += chunk.toString()))
    .on('end', () => (came.isOver = true))
    .on('close', () => (came.isOver = true))
  onTestFinished(() => void socket.destroy())
  await once(socket, 'connect')
  return { socket, came }
}

const get = (url: string) => `GET ${url} HTTP/1.1\r\nhost: x\r\n\r\n`
const statuses = (text: string) => [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => Number(status))

describe('too many unanswered requests', () => {
  // Counts the work of Node's own parser, to detect a version that emits the following requests.
  const writes: Record<string, string> = {
    'well-formed': get('/any'),
    'without Host': 'GET /any HTTP/1.1\r\n\r\n',
    'with an unknown Expect': 'GET /any HTTP/1.1\r\nhost: x\r\nexpect: x\r\n\r\n',
    'with Expect: 100-continue': 'GET /any HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n\r\n',
    'answered at once': get('/healthz'),
    'with a body, answered before the next is parsed': 'POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx',
  }
  it.each(Object.entries(writes))(
    'no request of one write (%s) is handled after the connection is closed',
    async (_name, request) => {
      const { port, urls, closed } = await startListener()
      const { socket, came } = await connect(port)
      socket.write(request.repeat(1000))
      await eventually(() => came.isOver)
      expect(urls.length).toBeLessThanOrEqual(4)
      expect(statuses(came.text).length).toBeLessThanOrEqual(5)
      expect(closed.filter((reason) => reason === 'pipelining')).toEqual(['pipelining'])
    },
  )

  it('a connection may have 4 unanswered requests, however slowly they are answered', async () => {
    const { port, urls, held } = await startListener()
    const { socket, came } = await connect(port)
    for (const first of [1, 5]) {
      for (let n = first; n < first + 4; n += 1) socket.write(get(`/held${n}`))
      await eventually(() => urls.length === first + 3)
      if (first === 1) held.splice(0).forEach((answer) => answer())
      await eventually(() => came.text.includes('</held4>'))
    }
    socket.write(get('/held9'))
    await eventually(() => came.isOver)
    expect(urls.length).toBe(8)
  })
})

describe('complete requests are answered first', () => {
  it('when the sender has closed its side', async () => {
    const { port, held } = await startListener({ halfOpen: true })
    const { socket, came } = await connect(port)
    socket.end(get('/held'))
    await eventually(() => held.length === 1)
    await turns()
    held.forEach((answer) => answer())
    await eventually(() => came.isOver)
    expect(came.text).toContain('</held>')
  })

  it.each([
    ['garbage', 'no HTTP at all\r\n\r\n', 400],
    ['CONNECT', 'CONNECT x:443 HTTP/1.1\r\nhost: x\r\n\r\n', 405],
    [
      'an incomplete body that is garbage',
      'POST /body HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n',
      400,
    ],
  ])('when %s follows', async (_name, text, status) => {
    const { port, held } = await startListener()
    const { socket, came } = await connect(port)
    socket.write(get('/held1') + get('/held2') + text)
    await eventually(() => held.length === 2)
    await turns()
    socket.write('and more of it')
    await turns()
    held.forEach((answer) => answer())
    await eventually(() => came.isOver)
    expect(statuses(came.text)).toEqual([200, 200, status])
    expect(came.text.indexOf('</held2>')).toBeLessThan(came.text.indexOf(`HTTP/1.1 ${status}`))
  })
})

// Improper requests are in test/bad-input/cases/framing.ts.
describe('proper requests', () => {
  it('whole URLs are reduced to their paths without rewriting them', async () => {
    const { port } = await startListener()
    const { socket, came } = await connect(port)
    socket.write(get('http://x/healthz') + get('HTTP://x:80/a/../b%2f?c=[d]') + get('https://x?q') + get('http://x'))
    await eventually(() => statuses(came.text).length === 4)
    expect(statuses(came.text)).toEqual([200, 200, 200, 200])
    for (const path of ['{"status":"ok"}', '</a/../b%2f?c=[d]>', '</?q>', '</>']) expect(came.text).toContain(path)
  })

  it('one request has one answer, also if its body never arrives', async () => {
    const { port } = await startListener({ requestTimeoutMs: 1000 })
    const { socket, came } = await connect(port)
    socket.write('GET /any HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n')
    await eventually(() => came.text.includes('</any>'))
    const closing = await connect(port)
    closing.socket.write('GET /healthz HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n')
    await eventually(() => closing.came.isOver)
    expect(statuses(closing.came.text)).toEqual([200])
    await eventually(() => came.isOver)
    expect(statuses(came.text)).toEqual([200])
  })
})

/** Lets the event loop turn so often that what was sent has come. */
async function turns(): Promise<void> {
  for (let n = 0; n < 50; n += 1) await nextTurn()
}
