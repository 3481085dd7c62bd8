import { once } from 'node:events'
import net from 'node:net'

/** Accepts every connection and all data, and never answers. */
export async function startTarpit() {
  const sockets = new Set<net.Socket>()
  let accepted = 0
  const server = net.createServer((socket) => {
    accepted += 1
    sockets.add(socket)
    socket
      .resume()
      .on('error', () => {})
      .on('close', () => sockets.delete(socket))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  return {
    origin: `http://127.0.0.1:${address.port}`,
    open: () => sockets.size,
    accepted: () => accepted,
    close: () => {
      server.close()
      for (const socket of sockets) socket.destroy()
    },
  }
}
