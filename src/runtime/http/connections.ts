import type http from 'node:http'
import type { Socket } from 'node:net'

/** Nobody who waits for answers has so many requests under way on one connection, let alone sends them in one turn. */
const maxRequestsPerTurn = 64

/** A balancer hardly sends a second one before the answer to the first, and then the connection is proven soon. */
const maxUnprovenRequests = 8

/** Of connections that have proved nothing so many requests are begun in a turn of the event loop. */
const unprovenPerTurn = 16

/** Connections are being accepted while the last one came no longer ago than this. */
const acceptingMs = 20
let acceptedAt = -Infinity

/**
 * How much of work that can wait is done in this turn of the event loop. A turn
 * takes in one connection, so while they come turns are kept short: whoever is
 * new waits for all those before him.
 */
export function shareOfTurn(usual: number): number {
  return performance.now() - acceptedAt < acceptingMs ? 1 : usual
}

/** When so many of them wait for their turn, no connection may have a second one among them. */
const maxWaiting = 1024

/** Far more than balancers keep open; each costs up to 16 KiB of headers that are not whole yet. */
const maxConnections = 4096

const proven = new WeakSet<Socket>()

/** What this connection brought was wanted: it is not closed to make room for others. */
export function proveConnection(socket: Socket): void {
  proven.add(socket)
}

type Bounds = { max?: number; onClosed?: (socket: Socket) => void }

/**
 * Bounds the connections of a listener. A newcomer beyond the bound takes the
 * place of the oldest that has brought nothing wanted: whoever holds thousands
 * open keeps nobody out. Where all have, the newcomer is refused.
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
    acceptedAt = performance.now()
    socket.once('close', () => {
      open -= 1
      unproven.delete(socket)
    })
    if (open > max) {
      const gone = oldestUnproven() ?? socket
      cutConnection(gone)
      onClosed?.(gone)
    }
    if (!socket.destroyed) unproven.add(socket)
  })
}

/**
 * Closes a connection and reads nothing more of it. Closing alone does not end
 * the parser, which goes on to hand over every request of what it was given.
 */
export function cutConnection(socket: Socket): void {
  const parser: unknown = Reflect.get(socket, 'parser')
  if (typeof parser === 'object' && parser !== null) Reflect.set(parser, 'onIncoming', stopParsing)
  socket.destroy()
}

/** An error, in the words of llhttp's on_headers_complete. */
const stopParsing = () => -1

/**
 * Gives the handlers of one listener their requests such that thousands which
 * fit in one read make nobody wait: those of connections that have proved
 * nothing in turns, a few at a time. Which has too many without their answers is closed.
 */
export function createRequestTurns(onClosed: (socket: Socket) => void): (handler: http.RequestListener) => http.RequestListener {
  const unanswered = new WeakMap<Socket, number>()
  let waiting: (() => void)[] = []
  let begun = 0
  let latest: Socket | undefined
  let inThisTurn = 0

  const close = (socket: Socket) => {
    cutConnection(socket)
    onClosed(socket)
  }
  const forget = () => {
    latest = undefined
  }
  const mayBegin = (socket: Socket): boolean => {
    if (socket !== latest) {
      latest = socket
      inThisTurn = 0
    } else if (inThisTurn === 1) {
      setImmediate(forget)
    }
    inThisTurn += 1
    return inThisTurn <= maxRequestsPerTurn
  }
  const beginWaiting = () => {
    const share = shareOfTurn(unprovenPerTurn)
    const now = waiting.slice(0, share)
    waiting = waiting.slice(share)
    begun = now.length
    if (begun > 0) setImmediate(beginWaiting)
    now.forEach((begin) => begin())
  }
  const mayWait = (socket: Socket, res: http.ServerResponse): boolean => {
    const count = (unanswered.get(socket) ?? 0) + 1
    if (count > maxUnprovenRequests || (count > 1 && waiting.length >= maxWaiting)) return false
    unanswered.set(socket, count)
    res.once('close', () => unanswered.set(socket, (unanswered.get(socket) ?? 1) - 1))
    return true
  }

  return (handler) => (req, res) => {
    const { socket } = req
    if (proven.has(socket)) return mayBegin(socket) ? handler(req, res) : close(socket)
    if (!mayWait(socket, res)) return close(socket)
    if (begun === 0) setImmediate(beginWaiting)
    begun += 1
    if (begun <= unprovenPerTurn && waiting.length === 0) return handler(req, res)
    waiting.push(() => {
      if (socket.writable && !req.destroyed) handler(req, res)
    })
  }
}
