import type { IncomingMessage } from 'node:http'
import { setImmediate as nextTurn } from 'node:timers/promises'

/** Verifying a larger body takes long, and strangers can cause it, so it is done in steps. */
export const largeBodyBytes = 64 * 1024

/**
 * Returns a function that runs long work in steps, one piece of work after the other, with a turn of the event loop
 * after each step. Small deliveries are answered in between. The budget of bodies bounds the waiting work.
 */
export function createTurns() {
  let last: Promise<unknown> = Promise.resolve()

  return <Result>(steps: Iterator<undefined, Result, undefined>): Promise<Result> => {
    const work = async () => {
      for (;;) {
        const step = steps.next()
        if (step.done === true) return step.value
        await nextTurn()
      }
    }
    const mine = last.then(work, work)
    last = mine.catch(() => {})
    return mine
  }
}

const paused: (() => void)[] = []

function readOn(): void {
  // Large bodies read per turn of the event loop. Few, so that turns stay short: each accepts one new connection.
  for (const resume of paused.splice(0, 4)) resume()
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
