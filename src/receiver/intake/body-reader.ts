import type { IncomingMessage, ServerResponse } from 'node:http'
import getRawBody from 'raw-body'
import { freeBytes, waitForTurn } from '../../platform/http/turns.ts'
import { largeBodyBytes } from '../domain/delivery.ts'
import { Refusal, tooManyChunks, unavailable } from './webhook-answers.ts'

/** The budget of all bodies that are being received or verified, over all connections. */
const maxHeldBytes = 64 * 1024 * 1024
/** The part of the budget that large bodies must leave to others, since a few of them could take all of it. */
const notForLargeBytes = 8 * 1024 * 1024
/** raw-body keeps every chunk until the end. This is the memory of a chunk besides its payload. */
const chunkBytes = 350
/** Chunks of 64 bytes on average, after the first 1,024. A sender's chunks are longer: a TCP segment holds over 1,000 bytes. */
const maxChunks = (bytes: number) => 1024 + bytes / 64
/** A body that arrives more slowly than this, after a grace, is cut when the budget is spent. */
const slowBytesPerMs = 64
const graceMs = 2000
/** The pace of a body is an average. A byte counts half as much after 0.7 s. */
const paceMemoryMs = 1000

/** A complete body. It counts towards the budget until it is released. */
export type ReceivedBody = { body: Buffer; release: () => void }

export type BodyReader = { read: (req: IncomingMessage, res: ServerResponse) => Promise<ReceivedBody> }

/**
 * Creates the reader of bodies. It reads with raw-body and watches each body: at most `maxBodyBytes`, no extreme
 * chunking, and all bodies within one budget. The budget does not count the first 16 KiB of a body, so an ordinary
 * delivery is always read, and nothing is measured for it. An announced Content-Length reserves nothing. Rejects with
 * Refusal.
 */
export function createBodyReader({ maxBodyBytes }: { maxBodyBytes: number }): BodyReader {
  const budget = createBudget()
  const tooLarge = () => new Refusal(413, 'payload_too_large', `the body is larger than ${maxBodyBytes} bytes`)

  const receive = async (req: IncomingMessage, announced: number | undefined): Promise<ReceivedBody> => {
    let bytes = 0
    let chunks = 0
    let share: Share | undefined
    const release = () => {
      if (share) budget.release(share)
    }
    const watch = (chunk: Buffer) => {
      bytes += chunk.length
      chunks += 1
      if (chunks > maxChunks(bytes)) return refuse(req, extremelyChunked())
      const wanted = bytes + chunks * chunkBytes - freeBytes
      if (wanted <= 0) return
      share ??= budget.open(req)
      notePace(share, chunk.length)
      const isHeld = budget.hold(share, wanted, Math.max(bytes, announced ?? 0) > largeBodyBytes)
      if (isHeld && bytes > freeBytes) waitForTurn(req)
    }
    req.on('error', ignore)
    try {
      const read = getRawBody(req, { length: announced ?? null, limit: maxBodyBytes })
      // Added after raw-body's own listener, which refuses bodies above the limit.
      req.on('data', watch)
      return { body: await read, release }
    } catch (error) {
      release()
      const isTooLarge = error instanceof Error && 'type' in error && error.type === 'entity.too.large'
      const refusal = error instanceof Refusal ? error : isTooLarge ? tooLarge() : incomplete()
      // raw-body paused the stream. The rest is discarded, unless reading it costs more than it costs the sender.
      if (refusal.reason !== tooManyChunks) req.resume()
      throw refusal
    } finally {
      req.off('data', watch)
      if (share) budget.noteEnd(share)
    }
  }

  return {
    read: (req, res) => {
      const length = req.headers['content-length']
      const announced = length === undefined ? undefined : Number(length)
      if (announced !== undefined && announced > maxBodyBytes) throw tooLarge()
      if (waitsForContinue(req)) res.writeContinue()
      return receive(req, announced)
    },
  }
}

/** Ends the reading of a body: raw-body stops at an error of its stream, and drops the chunks that it kept. */
function refuse(req: IncomingMessage, refusal: Refusal): void {
  req.emit('error', refusal)
}

/** raw-body handles errors of the stream. Errors after the end of the body have no effect. */
const ignore = () => {}

export function incomplete(): Refusal {
  return new Refusal(400, 'bad_request', 'the body did not arrive completely', { reason: 'aborted' })
}

function extremelyChunked(): Refusal {
  const message = 'the body comes in more chunks than its length allows: send larger ones'
  return new Refusal(413, 'payload_too_large', message, { reason: tooManyChunks })
}

function tooSlow(): Refusal {
  return new Refusal(408, 'request_timeout', 'the body did not arrive in time', { reason: 'too_slow' })
}

function tooMuch(): Refusal {
  return unavailable('too_much_being_received', { what: 'too much is being received' })
}

/** The part of the budget that one body holds, and its recent pace. */
type Share = {
  req: IncomingMessage
  held: number
  since: number
  /** Recently received bytes as of `paceAt`. Older bytes count less. */
  recentBytes: number
  paceAt: number
}

/** When the budget is spent, the slowest body is cut. If none is slow, the body that needs more is refused. */
function createBudget() {
  const receiving = new Set<Share>()
  let heldBytes = 0
  const resize = (share: Share, bytes: number) => {
    heldBytes += bytes - share.held
    share.held = bytes
  }

  return {
    open: (req: IncomingMessage): Share => {
      const now = performance.now()
      const share = { req, held: 0, since: now, recentBytes: 0, paceAt: now }
      receiving.add(share)
      return share
    },
    /**
     * Takes what a body needs. The slowest body is refused if the budget is spent, or this one if none is slow. Returns
     * false if it is this one.
     */
    hold: (share: Share, wanted: number, isLarge: boolean): boolean => {
      const most = isLarge ? maxHeldBytes - notForLargeBytes : maxHeldBytes
      while (heldBytes + wanted - share.held > most) {
        const slowest = findSlowest(receiving)
        const refused = slowest ?? share
        receiving.delete(refused)
        resize(refused, 0)
        refuse(refused.req, slowest ? tooSlow() : tooMuch())
        if (refused === share) return false
      }
      resize(share, wanted)
      return true
    },
    /** The body is complete or refused, so it is not cut any more. */
    noteEnd: (share: Share) => receiving.delete(share),
    release: (share: Share) => resize(share, 0),
  }
}

function notePace(share: Share, bytes: number): void {
  const now = performance.now()
  share.recentBytes = fadedBytes(share, now) + bytes
  share.paceAt = now
}

function fadedBytes({ recentBytes, paceAt }: Share, now: number): number {
  return recentBytes * Math.exp((paceAt - now) / paceMemoryMs)
}

/** Returns the slowest body that holds a part of the budget; undefined if none is slow. */
function findSlowest(receiving: ReadonlySet<Share>): Share | undefined {
  const now = performance.now()
  let slowest: Share | undefined
  let slowestPace = slowBytesPerMs
  for (const share of receiving) {
    // One that waits for its turn is not slow.
    if (share.req.isPaused() || now - share.since < graceMs || share.held === 0) continue
    const bytesPerMs = fadedBytes(share, now) / paceMemoryMs
    if (bytesPerMs < slowestPace) [slowest, slowestPace] = [share, bytesPerMs]
  }
  return slowest
}

const continuePattern = /(?:^|\W)100-continue(?:$|\W)/i

/** Returns true if the sender waits for `100 Continue`. The reader sends it, so that a refused body is never sent. */
function waitsForContinue({ headers, httpVersion }: IncomingMessage): boolean {
  return headers.expect !== undefined && httpVersion === '1.1' && continuePattern.test(headers.expect)
}
