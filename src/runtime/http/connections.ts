import type http from 'node:http'
import type { Socket } from 'node:net'

/** Nobody who waits for answers has so many requests under way on one connection, let alone sends them in one turn. */
const maxRequestsPerTurn = 64

/** Far more than balancers keep open; each costs up to 16 KiB of headers that are not whole yet. */
const maxConnections = 4096

const proven = new WeakSet<Socket>()

/** What this connection brought was wanted: it is not closed to make room for others. */
export function proveConnection(socket: Socket): void {
  proven.add(socket)
}

/**
 * Bounds the connections of a listener. A newcomer beyond the bound takes the
 * place of the oldest that has brought nothing wanted: whoever holds thousands
 * open keeps nobody out. Where all have, the newcomer is refused.
 */
export function boundConnections(server: http.Server, max = maxConnections): void {
  let open = 0
  const unproven = new Set<Socket>()
  const oldestUnproven = (): Socket | undefined => {
    for (const socket of unproven) {
      unproven.delete(socket)
      if (!proven.has(socket)) return socket
    }
    return undefined
  }
  server.on('connection', (socket) => {
    open += 1
    socket.once('close', () => {
      open -= 1
      unproven.delete(socket)
    })
    if (open > max) (oldestUnproven() ?? socket).destroy()
    if (!socket.destroyed) unproven.add(socket)
  })
}

/**
 * Closes a connection that sends request upon request without waiting for the
 * answers: thousands of them fit in one read, and all others wait meanwhile.
 */
export function refusePipelines(handler: http.RequestListener): http.RequestListener {
  let latest: Socket | undefined
  let inThisTurn = 0
  const forget = () => {
    latest = undefined
  }
  return (req, res) => {
    if (req.socket !== latest) {
      latest = req.socket
      inThisTurn = 0
    } else if (inThisTurn === 1) {
      setImmediate(forget)
    } else if (inThisTurn >= maxRequestsPerTurn) {
      return void req.socket.destroy()
    }
    inThisTurn += 1
    return handler(req, res)
  }
}
