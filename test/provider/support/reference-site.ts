import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo } from 'node:net'

export type Serve = (response: http.ServerResponse, request: http.IncomingMessage) => void | Promise<void>

/** An HTTP server that serves files or misbehaves as configured. Counts its connections. */
export async function startReferenceSite(serve: Serve) {
  let connections = 0
  const server = http.createServer((request, response) => {
    response.on('error', () => {})
    void Promise.resolve(serve(response, request)).catch(() => response.destroy())
  })
  server.on('connection', () => (connections += 1))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const close = () => {
    server.closeAllConnections()
    server.close()
  }
  const { port } = server.address() as AddressInfo
  return { origin: `http://127.0.0.1:${port}`, port, connections: () => connections, close }
}
