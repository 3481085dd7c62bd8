import net from 'node:net'
import type { LoadOrder, Measured } from './load.ts'
import { audioNotification, errorNotification, signedRequest } from './signed-requests.ts'

/**
 * The load generator, a process of its own. It signs every request before the
 * clock starts, writes them on raw sockets with one request in flight on each,
 * and checks every answer: it shares the machine with what it measures, so it
 * must be light.
 */
process.on('message', (order: LoadOrder) => {
  measure(order).then(
    (measured) => process.send?.({ measured }),
    (error: unknown) => process.send?.({ error: String(error) }),
  )
})
process.on('disconnect', () => process.exit(0))

const expectedEnd = '{"status":"accepted"}'

async function measure({ url, connections, requests }: LoadOrder): Promise<Measured> {
  const signed = signAll(requests)
  const sockets = await Promise.all(Array.from({ length: connections }, () => connect(url)))
  const latenciesMs = new Float64Array(requests)
  let next = 0
  let answered = 0

  const { promise: done, resolve, reject } = Promise.withResolvers<void>()
  const drive = (socket: net.Socket) => {
    let sentAt = 0
    let pending = ''
    const send = () => {
      const request = signed[next]
      if (request === undefined) return
      next += 1
      sentAt = performance.now()
      socket.write(request)
    }
    socket.setEncoding('latin1').on('data', (chunk: string) => {
      pending += chunk
      if (!isWhole(pending)) return
      if (!pending.startsWith('HTTP/1.1 200 ') || !pending.endsWith(expectedEnd)) return reject(new Error(`unexpected answer: ${pending}`))
      pending = ''
      latenciesMs[answered++] = performance.now() - sentAt
      if (answered === requests) return resolve()
      send()
    })
    socket.on('error', reject).on('close', () => reject(new Error('a connection was closed before all was answered')))
    send()
  }

  const started = performance.now()
  sockets.forEach(drive)
  await done
  const seconds = (performance.now() - started) / 1000
  sockets.forEach((socket) => socket.removeAllListeners('close').destroy())
  latenciesMs.sort()
  const at = (share: number) => latenciesMs[Math.min(Math.floor(requests * share), requests - 1)] ?? 0
  return { perSecond: requests / seconds, p50Ms: at(0.5), p99Ms: at(0.99) }
}

function signAll(count: number): Buffer[] {
  const nowSeconds = Math.floor(Date.now() / 1000)
  return Array.from({ length: count }, (_, index) => signedRequest(index % 2 === 0 ? audioNotification() : errorNotification(), nowSeconds))
}

function connect(url: string): Promise<net.Socket> {
  const { hostname, port } = new URL(url)
  const { promise, resolve, reject } = Promise.withResolvers<net.Socket>()
  const socket = net.connect({ host: hostname, port: Number(port), noDelay: true })
  socket.once('error', reject).once('connect', () => resolve(socket.off('error', reject)))
  return promise
}

const lengthPattern = /\r\ncontent-length: (\d+)\r\n/i

function isWhole(answer: string): boolean {
  const headEnd = answer.indexOf('\r\n\r\n')
  if (headEnd < 0) return false
  const length = lengthPattern.exec(answer)?.[1]
  return length !== undefined && answer.length >= headEnd + 4 + Number(length)
}
