import { once } from 'node:events'
import net from 'node:net'
import { onTestFinished } from 'vitest'

/**
 * In front of Postgres for the length of one test: refuses each connection that asks for a deadline at its start, as
 * PgBouncer does, and not before so many of them have come.
 */
export async function startRefusingPooler(url: string, together: number): Promise<string> {
  const { hostname, port } = new URL(url)
  const held: net.Socket[] = []
  const open = new Set<net.Socket>()
  const keep = (socket: net.Socket) => {
    open.add(socket)
    return socket.on('error', () => {}).once('close', () => open.delete(socket))
  }
  const server = net
    .createServer((client) => {
      keep(client).once('data', (first: Buffer) => {
        if (first.includes('statement_timeout')) {
          held.push(client)
          if (held.length >= together) for (const one of held) one.end(refusal)
          return
        }
        const upstream = keep(net.connect(Number(port), hostname))
        upstream.write(first)
        client.pipe(upstream).pipe(client)
      })
    })
    .listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(async () => {
    server.close()
    open.forEach((socket) => socket.destroy())
    await once(server, 'close')
  })
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  const through = new URL(url)
  through.port = String(address.port)
  return through.href
}

/** ErrorResponse: its type, its length, then fields that each end with a zero, and one more. */
const fields = Buffer.from('SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: statement_timeout\0\0')
const refusal = Buffer.concat([Buffer.from([0x45, 0, 0, 0, fields.length + 4]), fields])
