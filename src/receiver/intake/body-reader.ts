import type { IncomingMessage, ServerResponse } from 'node:http'
import { freeBytes, waitForTurn } from '../../platform/http/turns.ts'
import { Refusal, tooManyChunks, unavailable } from './webhook-answers.ts'

/** Larger bodies are verified in turns, and leave a part of the budget to others. */
export const largeBodyBytes = 64 * 1024
/** The budget of all bodies that are being received or verified, over all connections. */
const maxHeldBytes = 64 * 1024 * 1024
/** The part of the budget that large bodies must leave to others, since a few of them could take all of it. */
const notForLargeBytes = 8 * 1024 * 1024
/** Every chunk is kept until the end. This is the memory of a chunk besides its payload. */
const chunkBytes = 350
/** More than any sender needs, since a TCP segment holds over 1,000 bytes. */
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
 * Creates the reader of bodies: at most `maxBodyBytes`, no extreme chunking, and all bodies within one budget. The
 * budget does not count the first 16 KiB of a body, so an ordinary delivery is always read, and nothing is measured for
 * it. An announced Content-Length reserves nothing. Rejects with Refusal.
 */
export function createBodyReader({ maxBodyBytes }: { maxBodyBytes: number }): BodyReader {
  const budget = createBudget()
  const tooLarge = () => new Refusal(413, 'payload_too_large', `the body is larger than ${maxBodyBytes} bytes`)

  const receive = (req: IncomingMessage, announced: number) => {
    const { promise, resolve, reject } = Promise.withResolvers<ReceivedBody>()
    const chunks: Buffer[] = []
    let bytes = 0
    let share: Share | undefined
    const stop = () => {
      req.off('data', take).off('end', complete).off('close', abort)
      if (share) budget.noteEnd(share)
    }
    const release = () => {
      if (share) budget.release(share)
    }
    const refuse = (refusal: Refusal) => {
      stop()
      release()
      reject(refusal)
    }
    const complete = () => {
      stop()
      resolve({ body: chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks), release })
    }
    const abort = () => refuse(incomplete())
    const take = (chunk: Buffer) => {
      bytes += chunk.length
      chunks.push(chunk)
      if (bytes > maxBodyBytes) return refuse(tooLarge())
      if (chunks.length > maxChunks(bytes)) {
        // Reading the rest would cost more than it costs the sender.
        req.pause()
        return refuse(extremelyChunked())
      }
      const wanted = bytes + chunks.length * chunkBytes - freeBytes
      if (wanted <= 0) return
      const mine = (share ??= budget.open(refuse))
      notePace(mine, chunk.length)
      const isHeld = budget.hold(mine, wanted, Math.max(bytes, announced) > largeBodyBytes)
      if (!isHeld || bytes <= freeBytes) return
      mine.isPaused = true
      waitForTurn(req, () => (mine.isPaused = false))
    }
    req.on('data', take).on('end', complete).on('close', abort)
    return promise
  }

  return {
    read: (req, res) => {
      const announced = Number(req.headers['content-length'] ?? 0)
      if (announced > maxBodyBytes) throw tooLarge()
      if (waitsForContinue(req)) res.writeContinue()
      return receive(req, announced)
    },
  }
}

export function incomplete(): Refusal {
  return new Refusal(400, 'bad_request', 'the body did not arrive completely', { reason: 'aborted' })
}

function extremelyChunked(): Refusal {
  const message = 'the body comes in more chunks than its length allows: send larger ones'
  return new Refusal(413, 'payload_too_large', message, { reason: tooManyChunks })
}

/** The part of the budget that one body holds, and its recent pace. */
type Share = {
  held: number
  since: number
  /** True while this process does not read from it. */
  isPaused: boolean
  /** Recently received bytes as of `paceAt`. Older bytes count less. */
  recentBytes: number
  paceAt: number
  refuse: (refusal: Refusal) => void
}

/** When the budget is spent, the slowest body is cut. If none is slow, the body that needs more is refused. */
function createBudget() {
  const receiving = new Set<Share>()
  let heldBytes = 0

  return {
    open: (refuse: Share['refuse']): Share => {
      const now = performance.now()
      const share = { held: 0, since: now, isPaused: false, recentBytes: 0, paceAt: now, refuse }
      receiving.add(share)
      return share
    },
    /** Returns false if the body was refused. */
    hold: (share: Share, wanted: number, isLarge: boolean): boolean => {
      const most = isLarge ? maxHeldBytes - notForLargeBytes : maxHeldBytes
      while (heldBytes + wanted - share.held > most) {
        const slowest = findSlowest(receiving)
        const slow = () =>
          new Refusal(408, 'request_timeout', 'the body did not arrive in time', { reason: 'too_slow' })
        const refused = slowest ?? share
        refused.refuse(
          slowest ? slow() : unavailable('too_much_being_received', { what: 'too much is being received' }),
        )
        if (refused === share) return false
      }
      heldBytes += wanted - share.held
      share.held = wanted
      return true
    },
    /** The body is complete or refused, so it is not cut any more. */
    noteEnd: (share: Share) => receiving.delete(share),
    release: (share: Share) => {
      heldBytes -= share.held
      share.held = 0
    },
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
    if (share.isPaused || now - share.since < graceMs || share.held === 0) continue
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
