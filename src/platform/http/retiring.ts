import type http from 'node:http'
import type { Socket } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { answerUnderWay } from './connections.ts'

/**
 * After `retired` aborts, makes each answer close its connection, including answers in progress. New connections are
 * still accepted. So connections in use end before the listener closes, which could lose a request under way.
 */
export function endConnectionsFrom(
  retired: AbortSignal,
  open: ReadonlySet<Socket>,
): (handler: http.RequestListener) => http.RequestListener {
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

/** Accepts the connections that still wait. A closing listener would reset them and lose their requests. */
export async function takeWaitingConnections(server: http.Server): Promise<void> {
  let quiet = 0
  const note = () => {
    quiet = 0
  }
  server.on('connection', note)
  // Two quiet turns, because the current one may have accepted its connections before this call. At most 1000 turns,
  // because a flood of connections may leave none quiet.
  for (let turns = 0; quiet < 2 && turns < 1000; turns += 1) {
    quiet += 1
    await nextTurn()
  }
  server.off('connection', note)
}
