import type { IncomingMessage } from 'node:http'

/** Large bodies read per turn of the event loop. Few, so that turns stay short: each accepts one new connection. */
const readsPerTurn = 4

const paused: (() => void)[] = []

function readOn(): void {
  for (const resume of paused.splice(0, readsPerTurn)) resume()
  if (paused.length > 0) setImmediate(readOn)
}

/** Pauses a body until its turn among all bodies of this process. */
export function waitForTurn(req: IncomingMessage, onTurn?: () => void): void {
  req.pause()
  const resume = () => {
    onTurn?.()
    req.resume()
  }
  if (paused.push(resume) === 1) setImmediate(readOn)
}
