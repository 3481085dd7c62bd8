import type { IncomingMessage } from 'node:http'
import { setImmediate as nextTurn } from 'node:timers/promises'

/*
 * Large bodies take turns, so that small deliveries are answered in between. Strangers can send any number of large
 * bodies, and reading and verifying them takes long.
 */

let last: Promise<unknown> = Promise.resolve()

/** Runs long work in steps, with a turn of the event loop after each. The caller bounds the waiting work. */
export function inTurns<Result>(steps: Iterator<undefined, Result, undefined>): Promise<Result> {
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

/** The first bytes of a body are read without waiting for a turn. */
export const freeBytes = 16 * 1024

const paused: IncomingMessage[] = []

function readOn(): void {
  // Large bodies read per turn of the event loop. Few, so that turns stay short: each accepts one new connection.
  for (const req of paused.splice(0, 4)) req.resume()
  if (paused.length > 0) setImmediate(readOn)
}

/** Pauses a body until its turn among all bodies of this process. */
export function waitForTurn(req: IncomingMessage): void {
  req.pause()
  if (paused.push(req) === 1) setImmediate(readOn)
}

/** Discards what still arrives of a body, within 4 MiB, 1,024 chunks and 2 s, and then calls `end`. */
export function discardRest(req: IncomingMessage, end: () => void): void {
  let bytes = 0
  let chunks = 0
  const stop = () => {
    clearTimeout(timer)
    req.off('data', count).off('end', stop).off('close', stop)
    req.resume()
    end()
  }
  const count = (chunk: Buffer) => {
    bytes += chunk.length
    chunks += 1
    if (bytes > 4 * 1024 * 1024 || chunks > 1024) stop()
    else if (bytes > freeBytes) waitForTurn(req)
  }
  const timer = setTimeout(stop, 2000)
  req.on('data', count).on('end', stop).on('close', stop)
}
