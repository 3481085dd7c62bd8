import { once } from 'node:events'
import net from 'node:net'
import { onTestFinished } from 'vitest'

const message = (type: string, ...parts: (Buffer | number)[]): Buffer => {
  const body = Buffer.concat(parts.map((part) => (typeof part === 'number' ? int32(part) : part)))
  return Buffer.concat([Buffer.from(type), int32(body.length + 4), body])
}
const int32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4)
  bytes.writeInt32BE(value)
  return bytes
}
const ready = message('Z', Buffer.from('I'))

/**
 * A server that lets everyone in and says that it is ready for the next statement
 * without ever having answered one: what a driver makes of an answer that got lost.
 */
export async function startMutePostgres(): Promise<string> {
  const sockets = new Set<net.Socket>()
  const server = net
    .createServer((socket) => {
      sockets.add(socket)
      let pending = Buffer.alloc(0)
      let started = false
      socket
        .on('error', () => {})
        .on('data', (chunk: Buffer) => {
          pending = Buffer.concat([pending, chunk])
          for (;;) {
            const header = started ? 1 : 0
            if (pending.length < header + 4) return
            const end = header + pending.readInt32BE(header)
            if (pending.length < end) return
            const type = started ? String.fromCharCode(pending[0] ?? 0) : 'startup'
            pending = pending.subarray(end)
            if (type === 'startup') socket.write(Buffer.concat([message('R', 0), message('K', 1, 2), ready]))
            if (['Q', 'S', 'H'].includes(type)) socket.write(ready)
            started = true
          }
        })
    })
    .listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  onTestFinished(async () => {
    server.close()
    sockets.forEach((socket) => socket.destroy())
    await once(server, 'close')
  })
  return `postgres://x:y@127.0.0.1:${address.port}/z`
}
