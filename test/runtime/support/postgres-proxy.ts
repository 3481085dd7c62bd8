import { once } from 'node:events'
import net from 'node:net'
import { onTestFinished } from 'vitest'

/** A TCP proxy in front of Postgres that can stop passing on its answers, as a frozen server does. */
export async function startPostgresProxy(url: string) {
  const target = new URL(url)
  const sockets = new Set<net.Socket>()
  let letThrough = Infinity
  let accepted = 0
  let isPooler = false
  const server = net.createServer((client) => {
    accepted += 1
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
    upstream.on('data', (chunk: Buffer) => {
      if (isPooler) renameProcess(chunk)
      const passed = chunk.subarray(0, letThrough)
      letThrough -= passed.length
      if (passed.length > 0) client.write(passed)
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
    accepted: () => accepted,
    /** From now on only so many more bytes of answers come through. */
    swallowAfter: (bytes: number) => {
      letThrough = bytes
    },
    /** Tells clients of another process than the one that serves them, as poolers do. */
    actAsPooler: () => {
      isPooler = true
    },
    passOn: () => {
      letThrough = Infinity
    },
    /** Ends every connection; new ones are taken. */
    cut: () => sockets.forEach((socket) => socket.destroy()),
  }
}

/** BackendKeyData: its type, its length, then the process and a key. */
const backendKeyData = Buffer.from([0x4b, 0, 0, 0, 12])

function renameProcess(chunk: Buffer): void {
  const at = chunk.indexOf(backendKeyData)
  if (at !== -1) chunk.writeInt32BE(chunk.readInt32BE(at + backendKeyData.length) + 1, at + backendKeyData.length)
}
