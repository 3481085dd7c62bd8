import type { IncomingMessage } from 'node:http'

/** Large bodies are read on so many at a time: a turn of the event loop, which takes in one new connection, stays short. */
const readsPerTurn = 4

const paused: (() => void)[] = []

function readOn(): void {
  for (const resume of paused.splice(0, readsPerTurn)) resume()
  if (paused.length > 0) setImmediate(readOn)
}

/** Reads nothing more of a body until it is its turn, among all bodies of this process. */
export function waitForTurn(req: IncomingMessage, onTurn?: () => void): void {
  req.pause()
  const resume = () => {
    onTurn?.()
    req.resume()
  }
  if (paused.push(resume) === 1) setImmediate(readOn)
}
