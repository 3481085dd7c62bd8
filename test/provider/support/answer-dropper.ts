import { once } from 'node:events'
import net from 'node:net'
import { onTestFinished } from 'vitest'

/** DataRow and CommandComplete: without them a statement seems to end, with nothing in it. */
const dropped = new Set(['D', 'C'])

/** A proxy in front of Postgres that can leave out the answers, as a connection that was lost between two statements once did. */
export async function startAnswerDropper(url: string) {
  const target = new URL(url)
  const sockets = new Set<net.Socket>()
  let isDropping = false
  const server = net.createServer((client) => {
    const upstream = net.connect(Number(target.port), target.hostname)
    for (const socket of [client, upstream]) {
      sockets.add(socket)
      socket.on('error', () => {}).once('close', () => {
        client.destroy()
        upstream.destroy()
      })
    }
    client.pipe(upstream)
    let rest = Buffer.alloc(0)
    upstream.on('data', (chunk: Buffer) => {
      rest = Buffer.concat([rest, chunk])
      while (rest.length >= 5 && rest.length > rest.readInt32BE(1)) {
        const length = 1 + rest.readInt32BE(1)
        const message = rest.subarray(0, length)
        rest = rest.subarray(length)
        if (!isDropping || !dropped.has(String.fromCharCode(message[0] ?? 0))) client.write(message)
      }
    })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  onTestFinished(() => {
    server.close()
    sockets.forEach((socket) => socket.destroy())
  })
  const through = new URL(url)
  through.port = String(address.port)
  return {
    url: through.href,
    drop: (wanted: boolean) => {
      isDropping = wanted
    },
  }
}
