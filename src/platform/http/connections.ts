import type http from 'node:http'
import type { Socket } from 'node:net'

/** More than a balancer keeps open; each may cost up to 16 KiB of incomplete headers. */
const maxConnections = 4096
/** No client that waits for its answers has more requests under way on one connection. */
const maxUnanswered = 4

const proven = new WeakSet<Socket>()

/** Marks a connection that delivered something valid: it is not closed to make room for others. */
export function proveConnection(socket: Socket): void {
  proven.add(socket)
}

type Bounds = { max?: number; onClosed?: (socket: Socket) => void }

/**
 * Bounds the connections of a listener. A new connection beyond the bound takes the
 * place of the oldest one that is not proven, so a client that holds thousands open
 * keeps nobody out. Where all are proven, the new connection is closed.
 */
export function boundConnections(server: http.Server, { max = maxConnections, onClosed }: Bounds = {}): void {
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
    if (open > max) {
      const closed = oldestUnproven() ?? socket
      cutConnection(closed)
      onClosed?.(closed)
    }
    if (!socket.destroyed) unproven.add(socket)
  })
}

/**
 * Closes a connection and stops its parser, which would otherwise hand over every request of the
 * data that it has: thousands fit in one read, and a thousand such reads block the process for
 * half a minute. Node has no public way to stop it: this is the one private field that we write.
 */
function cutConnection(socket: Socket): void {
  const parser: unknown = Reflect.get(socket, 'parser')
  if (typeof parser === 'object' && parser !== null) Reflect.set(parser, 'onIncoming', stopParsing)
  socket.destroy()
}

/** An error code of llhttp's on_headers_complete. */
const stopParsing = () => -1

type Exchanges = { latest: http.IncomingMessage; unanswered: http.ServerResponse[] }
const exchanges = new WeakMap<Socket, Exchanges>()

/**
 * Hands requests on, and keeps the unanswered ones of each connection. A connection with
 * too many of them is closed.
 */
export function boundRequests(handler: http.RequestListener, onClosed: (socket: Socket) => void): http.RequestListener {
  return (req, res) => {
    const { socket } = req
    const unanswered = exchanges.get(socket)?.unanswered ?? []
    if (unanswered.length >= maxUnanswered) {
      cutConnection(socket)
      return onClosed(socket)
    }
    unanswered.push(res)
    exchanges.set(socket, { latest: req, unanswered })
    res.once('close', () => unanswered.splice(unanswered.indexOf(res), 1))
    handler(req, res)
  }
}

/** The answer that is written, or waited for, on a connection: requests are answered in their order. */
export function answerUnderWay(socket: Socket): http.ServerResponse | undefined {
  return exchanges.get(socket)?.unanswered[0]
}

/** The last request of a connection, whether or not it is answered. */
export function latestRequest(socket: Socket): http.IncomingMessage | undefined {
  return exchanges.get(socket)?.latest
}
