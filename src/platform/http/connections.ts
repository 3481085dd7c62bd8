import type http from 'node:http'
import type { Socket } from 'node:net'
import { afterThisTurn } from '../after-this-turn.ts'

/** The limit of a connection's unanswered requests, and of its requests in one turn of the event loop. */
const maxAtOnce = 4

type Connection = {
  /** True once it delivered a valid request, so that it is not closed to make room. */
  isProven: boolean
  latest: http.IncomingMessage | undefined
  unanswered: http.ServerResponse[]
  /** The last turn of the event loop that brought a request, and the requests of that turn. */
  turn: number
  inTurn: number
}

const connections = new WeakMap<Socket, Connection>()

function connectionOf(socket: Socket): Connection {
  const known = connections.get(socket)
  if (known) return known
  const connection = { isProven: false, latest: undefined, unanswered: [], turn: 0, inTurn: 0 }
  connections.set(socket, connection)
  return connection
}

export function proveConnection(socket: Socket): void {
  connectionOf(socket).isProven = true
}

type Bounds = { max?: number; onClosed?: (socket: Socket) => void }

/**
 * Limits the connections of a listener, and returns the open ones. A new connection over the limit replaces the oldest
 * unproven one, so a client that holds thousands open blocks no other client. If all are proven, the new connection is
 * closed. `max` is more than a load balancer keeps open. Each connection may cost up to 16 KiB of incomplete headers.
 */
export function boundConnections(server: http.Server, { max = 4096, onClosed }: Bounds = {}): ReadonlySet<Socket> {
  const open = new Set<Socket>()
  // A proven connection leaves this set when it is found, so a flood of connections does not search all of them again.
  const unproven = new Set<Socket>()
  const oldestUnproven = (): Socket | undefined => {
    for (const socket of unproven) {
      unproven.delete(socket)
      if (!connectionOf(socket).isProven) return socket
    }
    return undefined
  }
  server.on('connection', (socket) => {
    socket.once('close', () => {
      open.delete(socket)
      unproven.delete(socket)
    })
    if (open.size >= max) {
      const closed = oldestUnproven() ?? socket
      open.delete(closed)
      cutConnection(closed)
      onClosed?.(closed)
    }
    if (!socket.destroyed) {
      open.add(socket)
      unproven.add(socket)
    }
  })
  return open
}

/**
 * Closes a connection and stops its parser. The parser would otherwise emit thousands of requests from data already
 * read, which could block the process for half a minute. Node has no public API for this, so this sets a private field.
 */
function cutConnection(socket: Socket): void {
  const parser: unknown = Reflect.get(socket, 'parser')
  if (typeof parser === 'object' && parser !== null) Reflect.set(parser, 'onIncoming', stopParsing)
  socket.destroy()
}

/** Replaces the parser's callback after the headers. The result -1 is an error, at which llhttp stops. */
const stopParsing = () => -1

let turn = 0
const endTurn = afterThisTurn(() => (turn += 1))

/**
 * Calls the handler, and tracks the unanswered requests of each connection. Closes a connection with too many of them,
 * or with too many in one turn: the parser runs microtasks after each body, so the requests of one read could be
 * answered one after the other while no other connection is served.
 */
export function boundRequests(handler: http.RequestListener, onClosed: (socket: Socket) => void): http.RequestListener {
  return (req, res) => {
    const { socket } = req
    const ours = connectionOf(socket)
    const inTurn = ours.turn === turn ? ours.inTurn + 1 : 1
    if (ours.unanswered.length >= maxAtOnce || inTurn > maxAtOnce) {
      cutConnection(socket)
      return onClosed(socket)
    }
    ours.latest = req
    ours.turn = turn
    ours.inTurn = inTurn
    ours.unanswered.push(res)
    endTurn()
    res.on('close', () => ours.unanswered.splice(ours.unanswered.indexOf(res), 1))
    handler(req, res)
  }
}

/** The answer in progress on a connection. Requests are answered in order. */
export function answerUnderWay(socket: Socket): http.ServerResponse | undefined {
  return connections.get(socket)?.unanswered[0]
}

/** The last request of a connection, answered or not. */
export function latestRequest(socket: Socket): http.IncomingMessage | undefined {
  return connections.get(socket)?.latest
}
