import { once } from 'node:events'
import net from 'node:net'
import { onTestFinished } from 'vitest'

export type Relayed = { client: net.Socket; upstream: net.Socket }

/**
 * A TCP relay in front of Postgres for the length of one test. What clients say is
 * passed on; `onConnection` gives what is done with each piece of the answers.
 */
export async function startRelay(url: string, onConnection: (relayed: Relayed) => (answer: Buffer) => void) {
  const target = new URL(url)
  const open = new Set<net.Socket>()
  let accepted = 0
  const server = net
    .createServer((client) => {
      accepted += 1
      const upstream = net.connect(Number(target.port), target.hostname)
      for (const socket of [client, upstream]) {
        open.add(socket)
        socket
          .on('error', () => {})
          .once('close', () => {
            open.delete(socket)
            client.destroy()
            upstream.destroy()
          })
      }
      client.pipe(upstream)
      upstream.on('data', onConnection({ client, upstream }))
    })
    .listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  onTestFinished(async () => {
    server.close()
    open.forEach((socket) => socket.destroy())
    await once(server, 'close')
  })
  const through = new URL(url)
  through.port = String(address.port)
  return {
    url: through.href,
    accepted: () => accepted,
    /** Ends every connection; new ones are taken. */
    cut: () => open.forEach((socket) => socket.destroy()),
    /** The same without a farewell. */
    resetAll: () => open.forEach((socket) => socket.resetAndDestroy()),
  }
}
