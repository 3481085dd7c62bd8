import type http from 'node:http'
import type { Socket } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { answerUnderWay } from './connections.ts'

/**
 * From when a listener is retired each answer ends its connection, those under way included, while new
 * connections are still taken: whoever keeps connections has then none left that we would have to close
 * under a request which is on its way.
 */
export function endConnectionsFrom(
  server: http.Server,
  retired: AbortSignal,
): (handler: http.RequestListener) => http.RequestListener {
  const open = new Set<Socket>()
  server.on('connection', (socket) => {
    open.add(socket)
    socket.once('close', () => open.delete(socket))
  })
  const retire = () => {
    for (const socket of open) {
      const res = answerUnderWay(socket)
      if (res) res.shouldKeepAlive = false
    }
  }
  retired.addEventListener('abort', retire, { once: true })
  return (handler) => (req, res) => {
    if (retired.aborted) res.shouldKeepAlive = false
    handler(req, res)
  }
}

/** In a flood of them there is no end of connections. */
const maxTurns = 1000
/** The one that is under way may have looked for connections before. */
const quietTurns = 2

/**
 * Takes in the connections that the system has let in already, one in a turn of the event loop:
 * a listener that closes resets those which still wait, with what was sent on them.
 */
export async function takeWaitingConnections(server: http.Server): Promise<void> {
  let quiet = 0
  const note = () => {
    quiet = 0
  }
  server.on('connection', note)
  for (let turns = 0; quiet < quietTurns && turns < maxTurns; turns += 1) {
    quiet += 1
    await nextTurn()
  }
  server.off('connection', note)
}
