import { once } from 'node:events'
import net from 'node:net'
import { onTestFinished } from 'vitest'

/** Types of messages that a server sends (PostgreSQL, Message Formats). */
export const messageTypes = { dataRow: 0x44, commandComplete: 0x43 } as const

/** A TCP proxy in front of Postgres that leaves messages of some types out of its answers, as a broken driver or pooler does. */
export async function startOmittingProxy(url: string) {
  const target = new URL(url)
  const sockets = new Set<net.Socket>()
  let omitted: readonly number[] = []
  const server = net.createServer((client) => {
    const upstream = net.connect(Number(target.port), target.hostname)
    for (const socket of [client, upstream]) {
      sockets.add(socket)
      socket.on('error', () => {}).once('close', () => {
        sockets.delete(socket)
        client.destroy()
        upstream.destroy()
      })
    }
    client.pipe(upstream)
    let pending = Buffer.alloc(0)
    upstream.on('data', (chunk: Buffer) => {
      pending = Buffer.concat([pending, chunk])
      while (pending.length >= 5 && pending.length > pending.readUInt32BE(1)) {
        const end = pending.readUInt32BE(1) + 1
        const message = pending.subarray(0, end)
        pending = pending.subarray(end)
        if (!omitted.includes(message[0] ?? 0)) client.write(message)
      }
    })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  onTestFinished(async () => {
    server.close()
    sockets.forEach((socket) => socket.destroy())
    await once(server, 'close')
  })
  const through = new URL(url)
  through.port = String(address.port)
  return {
    url: through.href,
    /** From now on these are left out. */
    omit: (...types: number[]) => {
      omitted = types
    },
  }
}
