import type { IncomingMessage, ServerResponse } from 'node:http'
import { setImmediate as nextTurn } from 'node:timers/promises'
import getRawBody from 'raw-body'

/** Verifying a larger body takes long, and strangers can cause it, so it is done in steps. */
export const largeBodyBytes = 64 * 1024
/** The budget of all bodies that are being received or verified, over all connections. */
const maxHeldBytes = 64 * 1024 * 1024
/** The part of the budget that bodies over 64 KiB must leave to others, since a few of them could take all of it. */
const notForLargeBytes = 8 * 1024 * 1024
/** The budget does not count the first bytes of a body, so an ordinary delivery is always read. */
export const freeBytes = 16 * 1024
/** raw-body keeps every chunk until the end. This is the memory of a chunk besides its payload. */
const chunkBytes = 350
/** More than any sender needs, since a TCP segment holds over 1,000 bytes. */
const maxChunks = (bytes: number) => 1024 + bytes / 64
/** A body that arrives more slowly than this, after a grace, is cut when the budget is spent. */
const slowBytesPerMs = 64
const graceMs = 2000
/** The pace of a body is an average. A byte counts half as much after 0.7 s. */
const paceMemoryMs = 1000

export type BodyRefusal = 'payload_too_large' | 'too_many_chunks' | 'too_slow' | 'too_much_being_received' | 'aborted'

export class BodyError extends Error {
  override name = 'BodyError'
  code: BodyRefusal
  constructor(code: BodyRefusal, options?: ErrorOptions) {
    super(`the body was not received: ${code}`, options)
    this.code = code
  }
}

/** A complete body. It counts towards the budget until it is released. */
export type ReceivedBody = { body: Buffer; release: () => void }

export type BodyReader = { read: (req: IncomingMessage, res: ServerResponse) => Promise<ReceivedBody> }

type Receiving = {
  bytes: number
  /** Bytes of the budget that this body holds. */
  held: number
  startedAt: number
  /** True while this process does not read from it. */
  isPaused: boolean
  /** Recently received bytes as of `paceAt`. Older bytes count less. */
  recentBytes: number
  paceAt: number
  refuse: (code: BodyRefusal) => void
}

/**
 * Creates the reader of bodies. It reads with raw-body and watches each body: at most `maxBodyBytes`, no extreme
 * chunking, and all bodies within one budget. When the budget is spent, the slowest body is cut. If none is slow, the
 * body that needs more is refused. An announced Content-Length reserves nothing.
 */
export function createBodyReader({ maxBodyBytes }: { maxBodyBytes: number }): BodyReader {
  const receiving = new Set<Receiving>()
  let heldBytes = 0

  const release = (one: Receiving) => {
    heldBytes -= one.held
    one.held = 0
  }

  const hold = (one: Receiving, wanted: number, isLarge: boolean): void => {
    const most = isLarge ? maxHeldBytes - notForLargeBytes : maxHeldBytes
    while (heldBytes + wanted - one.held > most) {
      const slowest = findSlowest(receiving)
      if (slowest === undefined) return one.refuse('too_much_being_received')
      slowest.refuse('too_slow')
      if (slowest === one) return
    }
    heldBytes += wanted - one.held
    one.held = wanted
  }

  const receive = async (req: IncomingMessage, declared: number | undefined): Promise<ReceivedBody> => {
    const one = newReceiving((code) => {
      if (!receiving.delete(one)) return
      release(one)
      // raw-body stops at an error of its stream and drops the chunks that it kept.
      req.emit('error', new BodyError(code))
    })
    let chunks = 0
    const watch = (chunk: Buffer) => {
      chunks += 1
      one.bytes += chunk.length
      if (chunks > maxChunks(one.bytes)) return one.refuse('too_many_chunks')
      notePace(one, chunk.length)
      hold(
        one,
        Math.max(0, one.bytes + chunks * chunkBytes - freeBytes),
        Math.max(one.bytes, declared ?? 0) > largeBodyBytes,
      )
      if (one.bytes <= freeBytes || !receiving.has(one)) return
      one.isPaused = true
      waitForTurn(req, () => (one.isPaused = false))
    }
    receiving.add(one)
    req.on('error', ignore)
    try {
      const read = getRawBody(req, { length: declared ?? null, limit: maxBodyBytes })
      // Added after raw-body's own listener, which refuses bodies above the limit.
      req.on('data', watch)
      return { body: await read, release: () => release(one) }
    } catch (error) {
      release(one)
      const bodyError = bodyErrorOf(error)
      // raw-body paused the stream. The rest is discarded, unless reading it costs more than it costs the sender.
      if (bodyError.code !== 'too_many_chunks') req.resume()
      throw bodyError
    } finally {
      req.off('data', watch)
      receiving.delete(one)
    }
  }

  return {
    read: async (req, res) => {
      const length = req.headers['content-length']
      const declared = length === undefined ? undefined : Number(length)
      if (declared !== undefined && declared > maxBodyBytes) throw new BodyError('payload_too_large')
      if (waitsForContinue(req)) res.writeContinue()
      return receive(req, declared)
    },
  }
}

/** raw-body handles errors of the stream. Errors after the end of the body have no effect. */
const ignore = () => {}

function newReceiving(refuse: Receiving['refuse']): Receiving {
  const now = performance.now()
  return { bytes: 0, held: 0, startedAt: now, isPaused: false, recentBytes: 0, paceAt: now, refuse }
}

function bodyErrorOf(error: unknown): BodyError {
  if (error instanceof BodyError) return error
  const isTooLarge = error instanceof Error && 'type' in error && error.type === 'entity.too.large'
  return new BodyError(isTooLarge ? 'payload_too_large' : 'aborted', { cause: error })
}

function notePace(one: Receiving, bytes: number): void {
  const now = performance.now()
  one.recentBytes = fadedBytes(one, now) + bytes
  one.paceAt = now
}

function fadedBytes({ recentBytes, paceAt }: Receiving, now: number): number {
  return recentBytes * Math.exp((paceAt - now) / paceMemoryMs)
}

/** Returns the slowest body that holds a part of the budget; undefined if none is slow. */
function findSlowest(receiving: ReadonlySet<Receiving>): Receiving | undefined {
  const now = performance.now()
  let slowest: Receiving | undefined
  let slowestPace = slowBytesPerMs
  for (const one of receiving) {
    if (one.isPaused || now - one.startedAt < graceMs || one.held === 0) continue
    const bytesPerMs = fadedBytes(one, now) / paceMemoryMs
    if (bytesPerMs < slowestPace) [slowest, slowestPace] = [one, bytesPerMs]
  }
  return slowest
}

const continuePattern = /(?:^|\W)100-continue(?:$|\W)/i

/** Returns true if the sender waits for `100 Continue`. The reader sends it, so that a refused body is never sent. */
function waitsForContinue({ headers, httpVersion }: IncomingMessage): boolean {
  return headers.expect !== undefined && httpVersion === '1.1' && continuePattern.test(headers.expect)
}

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
