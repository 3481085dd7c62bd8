import { randomBytes, randomUUID } from 'node:crypto'
import net from 'node:net'
import os from 'node:os'
import { setTimeout as delay } from 'node:timers/promises'

// A stranger as a separate program: `node test/chaos/stranger.ts <url> <row> <seconds> [most connections]`. It holds no secret.

const mebibyte = 1_048_576

type Row = {
  connections: number
  /** The bytes that each connection sends, repeated after each answer. */
  message: () => readonly (string | Buffer)[]
  /** All connections are open before the first of them sends; then, once they are cut, again. */
  together?: boolean
  /** Each connection sends its message that often a second, answered or not. */
  perSecond?: number
}

function head(headers: Record<string, string | number>, { method = 'POST', path = '/webhooks' } = {}): string {
  return [
    `${method} ${path} HTTP/1.1`,
    'host: x',
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
    '',
    '',
  ].join('\r\n')
}

function forgedHeaders(): Record<string, string> {
  const t = Math.floor(Date.now() / 1000)
  return { 'x-service-webhook-id': randomUUID(), 'x-service-signature': `t=${t},v1=${randomBytes(32).toString('hex')}` }
}

const filler = 'x'.repeat(8000)
const large = Buffer.alloc(mebibyte, 'x')
/** The size of one read. */
const inOneWrite = (request: string) => [request.repeat(Math.floor(65_536 / request.length))]
const withoutHost = 'GET / HTTP/1.1\r\n\r\n'
const pieces = Buffer.from('1\r\nx\r\n'.repeat(10_000))

export const strangerRows: Readonly<Record<string, Row>> = {
  'headers without a body': {
    connections: 100,
    message: () => [head({ ...forgedHeaders(), 'x-filler': filler, 'content-length': 0 })],
  },
  'small forged bodies': { connections: 100, message: () => [head({ ...forgedHeaders(), 'content-length': 2 }), '{}'] },
  'chunks of one byte': {
    connections: 16,
    message: () => [
      head({ ...forgedHeaders(), 'transfer-encoding': 'chunked' }),
      ...Array.from({ length: 100 }, () => pieces),
    ],
  },
  'segments of one byte': {
    connections: 16,
    message: () => [
      head({ ...forgedHeaders(), 'content-length': mebibyte }),
      ...Array.from({ length: 2000 }, () => 'x'),
    ],
  },
  readyz: { connections: 32, message: () => [head({}, { method: 'GET', path: '/readyz' })] },
  'pipelined readyz': { connections: 16, message: () => [head({}, { method: 'GET', path: '/readyz' }).repeat(500)] },
  'pipelined forgeries': {
    connections: 16,
    message: () => [head({ ...forgedHeaders(), 'content-length': 0 }).repeat(500)],
  },
  'pipelines without Host': { connections: 1000, together: true, message: () => inOneWrite(withoutHost) },
  'pipelined healthz': {
    connections: 1000,
    together: true,
    message: () => inOneWrite(head({}, { method: 'GET', path: '/healthz' })),
  },
  'pipelined Expect': {
    connections: 1000,
    together: true,
    message: () => inOneWrite(head({ expect: 'x' }, { method: 'GET', path: '/' })),
  },
  'pipelined forgeries, opened first': {
    connections: 1000,
    together: true,
    message: () => inOneWrite(head({ ...forgedHeaders(), 'content-length': 0 })),
  },
  'pipelined bodies of one byte': {
    connections: 300,
    message: () => inOneWrite(`${head({ ...forgedHeaders(), 'content-length': 1 })}x`),
  },
  'four bodies of one byte in a write': {
    connections: 300,
    message: () => [`${head({ ...forgedHeaders(), 'content-length': 1 })}x`.repeat(4)],
  },
  'pipelines of 60 at 5 Mbit/s': {
    connections: 200,
    perSecond: 2,
    message: () => [head({}, { method: 'GET', path: '/' }).repeat(60)],
  },
  'pipelines of 8': { connections: 200, message: () => [head({}, { method: 'GET', path: '/' }).repeat(8)] },
  'no proper requests': {
    connections: 100,
    message: () => ['GET http://[bad/ HTTP/1.1\r\nhost: x\r\nhost: x\r\n\r\n'],
  },
  CONNECT: { connections: 100, message: () => ['CONNECT x:443 HTTP/1.1\r\nhost: x\r\n\r\n'] },
  'garbage after a forgery': {
    connections: 100,
    message: () => [`${head({ ...forgedHeaders(), 'content-length': 0 })}no HTTP\r\n\r\n`],
  },
  'health with a body that never comes': {
    connections: 500,
    message: () => [head({ 'content-length': 5 }, { method: 'GET', path: '/healthz' })],
  },
  'held bodies of 1 MiB': {
    connections: 2000,
    message: () => [head({ ...forgedHeaders(), 'content-length': mebibyte }), large.subarray(1)],
  },
  'forged bodies of 1 MiB': {
    connections: 16,
    message: () => [head({ ...forgedHeaders(), 'content-length': mebibyte }), large],
  },
  'Expect with 1 GB': {
    connections: 50,
    message: () => [head({ expect: '100-continue', 'content-length': 1_000_000_000 })],
  },
  'a webhook id of 15 kB': {
    connections: 100,
    message: () => [head({ 'x-service-webhook-id': filler.repeat(2).slice(0, 15_000), 'content-length': 0 })],
  },
  'paths that are not there': {
    connections: 100,
    message: () => [head({ 'content-length': 0 }, { path: `/${filler}` })],
  },
  'idle connections': {
    connections: 5000,
    message: () => [head({}, { method: 'GET', path: '/healthz' }).slice(0, -2)],
  },
  'half-closed connections': {
    connections: 200,
    message: () => [head({ ...forgedHeaders(), 'content-length': 5 }), 'x'],
  },
}

const reconnectMs = 20

/** Does what a row says until the time is over; answers how often it was answered. */
async function run(url: string, row: Row, { seconds, most }: { seconds: number; most: number }): Promise<number> {
  const { hostname, port } = new URL(url)
  const sockets = new Set<net.Socket>()
  const connections = Math.min(row.connections, most)
  let answers = 0
  let isOver = false

  const ready: (() => void)[] = []
  const sendTogether = () => ready.splice(0).forEach((send) => send())

  const open = () => {
    if (isOver) return
    const socket = net.connect({ port: Number(port), host: hostname, noDelay: true })
    sockets.add(socket)
    const send = () => row.message().forEach((part) => socket.writable && socket.write(part))
    socket.on('error', () => {})
    const ticking = row.perSecond === undefined ? undefined : setInterval(send, 1000 / row.perSecond)
    socket.once('connect', () => {
      if (!row.together) return send()
      // The listener has it when it has its first answer.
      socket.write(head({}, { method: 'GET', path: '/healthz' }))
      socket.once('data', () => {
        if (ready.push(send) === connections) sendTogether()
      })
    })
    socket.on('data', () => {
      answers += 1
      if (socket.writableLength === 0 && !row.together && row.perSecond === undefined) send()
    })
    socket.once('close', () => {
      sockets.delete(socket)
      clearInterval(ticking)
      setTimeout(open, reconnectMs)
    })
  }
  for (let n = 0; n < connections && !isOver; n += 1) {
    open()
    // The kernel's queue of new connections is short.
    if (n % 50 === 49) await delay(5)
  }
  await delay(seconds * 1000)
  isOver = true
  sockets.forEach((socket) => socket.destroy())
  return answers
}

if (import.meta.main) {
  // Its machine is not ours: it gives way to those it torments.
  os.setPriority(10)
  const [url = '', name = '', seconds = '1', most = 'Infinity'] = process.argv.slice(2)
  const row = strangerRows[name]
  if (!row) throw new Error(`no such row: ${name}`)
  process.stdout.write(`${await run(url, row, { seconds: Number(seconds), most: Number(most) })}\n`)
  process.exit(0)
}
