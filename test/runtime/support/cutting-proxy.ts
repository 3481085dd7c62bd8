import { once } from 'node:events'
import net from 'node:net'
import { onTestFinished } from 'vitest'

export type Cut = {
  /** Bytes of the server's answers, from the beginning of a connection, that still come through. */
  after: number
  /** `reset` as a firewall or a crash does, `end` as a server that closes. */
  how: 'reset' | 'end'
}

/** A TCP proxy in front of Postgres that ends its connections in the middle of an answer. */
export async function startCuttingProxy(url: string) {
  const target = new URL(url)
  const open = new Set<net.Socket>()
  let cut: Cut | undefined
  let accepted = 0
  let answered = 0
  const server = net.createServer((client) => {
    accepted += 1
    const upstream = net.connect(Number(target.port), target.hostname)
    let passed = 0
    let isCut = false
    for (const socket of [client, upstream]) {
      open.add(socket)
      socket.on('error', () => {}).once('close', () => {
        open.delete(socket)
        client.destroy()
        upstream.destroy()
      })
    }
    client.pipe(upstream)
    upstream.on('data', (chunk: Buffer) => {
      if (isCut) return
      const rest = cut === undefined ? chunk : chunk.subarray(0, Math.max(0, cut.after - passed))
      passed += rest.length
      answered = passed
      if (cut === undefined || rest.length === chunk.length) return void client.write(rest)
      isCut = true
      // A reset throws away what was not sent yet: first what may still pass, then the end.
      client.write(rest, () => (cut?.how === 'end' ? client.end() : client.resetAndDestroy()))
    })
  }).listen(0, '127.0.0.1')
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
    port: address.port,
    accepted: () => accepted,
    /** Bytes of answers that the newest connection has brought. */
    answered: () => answered,
    cutAfter: (next: Cut | undefined) => {
      cut = next
    },
    resetAll: () => open.forEach((socket) => socket.resetAndDestroy()),
  }
}
