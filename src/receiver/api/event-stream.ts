import { once } from 'node:events'
import type { Writable } from 'node:stream'
import type { Response } from 'express'
import { HttpError } from '../../platform/http/http.ts'
import type { Logger } from '../../platform/logger.ts'
import { gone } from './operation.ts'

/** A stream without data sends a comment this often, so that proxies keep the connection. */
const heartbeatMs = 15_000

/**
 * Writes, and waits until the client has accepted the data, so that memory holds one piece per slow reader. Rejects
 * when `signal` aborts, or when the client accepts nothing for `stallMs`.
 */
export async function writeTo(
  reader: Writable,
  text: string,
  // A client that accepts no data for this long has gone, or blocks a stream that others need.
  { signal, stallMs = 30_000 }: { signal: AbortSignal; stallMs?: number },
): Promise<void> {
  if (!reader.write(text))
    await once(reader, 'drain', { signal: AbortSignal.any([signal, AbortSignal.timeout(stallMs)]) })
}

/** Returns a function that does the work of a call while fewer than `max` of them run. Others get HttpError 503. */
export function boundCalls(max: number, what: string) {
  let running = 0
  return async <T>(work: () => Promise<T>): Promise<T> => {
    if (running >= max)
      throw new HttpError(503, 'too_many_waiting', `${max} ${what} already`, { headers: { 'retry-after': '5' } })
    running += 1
    try {
      return await work()
    } finally {
      running -= 1
    }
  }
}

/** Writes to the stream. `closed` aborts when the client disconnects or the process stops. */
export type Send = (write: (text: string) => Promise<void>, closed: AbortSignal) => Promise<void>

type StreamsOptions = { max: number; what: string; logger: Logger; signal: AbortSignal }

/** Returns a function that answers with server-sent events until `send` ends. At most `max` streams are open. */
export function createEventStreams({ max, what, logger, signal }: StreamsOptions) {
  const bounded = boundCalls(max, `${what} are open`)
  return (res: Response, send: Send): Promise<void> =>
    bounded(async () => {
      const closed = AbortSignal.any([gone(res), signal])
      let wroteAt = performance.now()
      const write = async (text: string) => {
        wroteAt = performance.now()
        await writeTo(res, text, { signal: closed })
      }
      const beat = setInterval(() => {
        if (performance.now() - wroteAt >= heartbeatMs) res.write(': still here\n\n')
      }, heartbeatMs)
      try {
        res.set({ 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' })
        await write('retry: 2000\n\n')
        await send(write, closed)
      } catch (error) {
        // The client disconnected, or accepted no data for too long.
        if (!closed.aborted) logger.info({ err: error, path: res.req.path }, 'a stream ended early')
        res.destroy()
      } finally {
        clearInterval(beat)
        res.end()
      }
    })
}
