import type { IncomingMessage, ServerResponse } from 'node:http'
import getRawBody from 'raw-body'
import { largeBodyBytes } from './large-bodies.ts'
import { waitForTurn } from './read-turns.ts'

/** Bodies being received or verified, over all connections. */
const maxHeldBytes = 64 * 1024 * 1024
/** Of these so much is not for large ones, of which a few are enough to take all. */
const notForLargeBytes = 8 * 1024 * 1024
/** So much of every body is read whatever else is held: an ordinary delivery always is. */
const freeBytes = 16 * 1024
/** A sender whose segments are as small as they come is far below; bodies in pieces of a few bytes cost more than all else. */
const freeChunks = 1024
const bytesPerChunk = 64
/** Slow is what comes on by less than this while it is read, once it has had time to show its pace. */
const slowBytesPerMs = 64
const graceMs = 2000
/** What came longer ago than this counts for little. */
const memoryMs = 1000
const firstCapacity = 4096

export type BodyRefusal = 'payload_too_large' | 'too_many_chunks' | 'too_slow' | 'too_much_being_received' | 'aborted'

export class BodyError extends Error {
  override name = 'BodyError'
  code: BodyRefusal
  constructor(code: BodyRefusal) {
    super(`the body was not received: ${code}`)
    this.code = code
  }
}

/** A whole body; it counts as being received until it is released. */
export type ReceivedBody = { body: Buffer; release: () => void }

export type BodyReader = {
  read: (req: IncomingMessage, res: ServerResponse) => Promise<ReceivedBody>
  heldBytes: () => number
}

type Receiving = {
  bytes: number
  chunks: number
  /** What the bytes lie in: the only chunk while there is one, then a buffer that grows with them. */
  buffer: Buffer
  startedAt: number
  /** It is we who do not read on. */
  isPaused: boolean
  /** What came of late, the older the less, as of `cameAt`. */
  came: number
  cameAt: number
  refuse: (code: BodyRefusal) => void
}

/**
 * Reads bodies, each into one buffer that grows with what arrives, and all of
 * them within one budget: beyond it the slowest is cut, and where none is slow
 * the one that asks for more is refused; large ones leave a part of it to the
 * others. What a stranger announces reserves nothing.
 */
export function createBodyReader({ maxBodyBytes }: { maxBodyBytes: number }): BodyReader {
  const receiving = new Set<Receiving>()
  let held = 0

  const release = (buffer: Buffer) => {
    held -= costOf(buffer.length)
  }

  /** Makes room in the budget for `more` bytes of one that will have `length`; false where there is none. */
  const reserve = (more: number, length: number, asking: Receiving): boolean => {
    const most = length > largeBodyBytes ? maxHeldBytes - notForLargeBytes : maxHeldBytes
    while (held + more > most) {
      const slowest = findSlowest(receiving)
      if (slowest === undefined) return false
      slowest.refuse('too_slow')
      if (slowest === asking) return false
    }
    held += more
    return true
  }

  const append = (one: Receiving, chunk: Buffer, declared: number | undefined): void => {
    const bytes = one.bytes + chunk.length
    one.chunks += 1
    if (bytes > maxBodyBytes) return one.refuse('payload_too_large')
    if (one.chunks > freeChunks + bytes / bytesPerChunk) return one.refuse('too_many_chunks')
    if (bytes > one.buffer.length) {
      const isFirst = one.bytes === 0
      const capacity = isFirst ? bytes : Math.min(declared ?? maxBodyBytes, Math.max(firstCapacity, bytes * 2))
      if (!reserve(costOf(capacity) - costOf(one.buffer.length), Math.max(capacity, declared ?? 0), one))
        return one.refuse('too_much_being_received')
      const buffer = isFirst ? chunk : Buffer.allocUnsafeSlow(capacity)
      if (!isFirst) one.buffer.copy(buffer, 0, 0, one.bytes)
      one.buffer = buffer
    }
    if (one.bytes > 0) chunk.copy(one.buffer, one.bytes)
    one.bytes = bytes
    // Whoever is whole with its first chunk never has its pace looked at.
    if (one.chunks > 1 || bytes > freeBytes) noteProgress(one, chunk.length)
  }

  const receive = (req: IncomingMessage, declared: number | undefined): Promise<ReceivedBody> =>
    new Promise((resolve, reject) => {
      const now = performance.now()
      const one: Receiving = {
        bytes: 0,
        chunks: 0,
        buffer: nothing,
        startedAt: now,
        isPaused: false,
        came: 0,
        cameAt: now,
        refuse: (code) => refuse(code),
      }
      const onData = (chunk: Buffer) => {
        append(one, chunk, declared)
        if (one.bytes <= freeBytes || !receiving.has(one)) return
        one.isPaused = true
        waitForTurn(req, () => (one.isPaused = false))
      }
      const leave = () => {
        receiving.delete(one)
        req.off('data', onData).off('end', onEnd).off('close', onClose)
      }
      const refuse = (code: BodyRefusal) => {
        if (!receiving.has(one)) return
        leave()
        release(one.buffer)
        one.buffer = nothing
        // What still comes is dropped as it comes; thousands of pieces are in the parser already.
        if (code === 'too_many_chunks') Reflect.set(req, '_dumped', true)
        req.resume()
        reject(new BodyError(code))
      }
      const onEnd = () => {
        leave()
        const { buffer, bytes } = one
        // A buffer has up to twice its bytes: a large one is not kept around a smaller body.
        const isLoose = buffer.length - bytes > freeBytes
        const body = isLoose ? Buffer.from(buffer.subarray(0, bytes)) : buffer.subarray(0, bytes)
        resolve({ body, release: once(() => release(buffer)) })
      }
      const onClose = () => refuse('aborted')
      receiving.add(one)
      req.on('data', onData).on('end', onEnd).on('close', onClose).on('error', ignore)
    })

  return {
    read: async (req, res) => {
      const declared = req.headers['content-length'] === undefined ? undefined : Number(req.headers['content-length'])
      if (declared !== undefined && declared > maxBodyBytes) throw new BodyError('payload_too_large')
      if (waitsForContinue(req)) res.writeContinue()
      return declared !== undefined && declared <= freeBytes ? receiveSmall(req, declared) : receive(req, declared)
    },
    heldBytes: () => held,
  }
}

/** An ordinary body, which says how long it is and takes nothing of the budget. Its pieces are bounded: raw-body keeps each of them. */
async function receiveSmall(req: IncomingMessage, declared: number): Promise<ReceivedBody> {
  const { promise: cut, reject } = Promise.withResolvers<never>()
  let chunks = 0
  const count = () => {
    chunks += 1
    if (chunks > freeChunks + declared / bytesPerChunk) reject(new BodyError('too_many_chunks'))
  }
  req.on('data', count)
  try {
    return { body: await Promise.race([cut, getRawBody(req, { length: declared, limit: freeBytes })]), release: () => {} }
  } catch (error) {
    throw error instanceof BodyError ? error : new BodyError('aborted')
  } finally {
    req.off('data', count)
  }
}

const nothing = Buffer.alloc(0)
// A request that breaks off is closed as well, and that is what is listened to.
const ignore = () => {}

function costOf(capacity: number): number {
  return Math.max(0, capacity - freeBytes)
}

function noteProgress(one: Receiving, bytes: number): void {
  const now = performance.now()
  one.came = one.came * faded(now - one.cameAt) + bytes
  one.cameAt = now
}

function faded(ms: number): number {
  return Math.exp(-ms / memoryMs)
}

/** The slowest of late, of those that hold something of the budget; undefined where none is slow. */
function findSlowest(receiving: ReadonlySet<Receiving>): Receiving | undefined {
  const now = performance.now()
  let slowest: Receiving | undefined
  let slowestPace = slowBytesPerMs
  for (const one of receiving) {
    if (one.isPaused || now - one.startedAt < graceMs || costOf(one.buffer.length) === 0) continue
    const bytesPerMs = (one.came * faded(now - one.cameAt)) / memoryMs
    if (bytesPerMs < slowestPace) [slowest, slowestPace] = [one, bytesPerMs]
  }
  return slowest
}

const continuePattern = /(?:^|\W)100-continue(?:$|\W)/i

/** The listener leaves the `100 Continue` to us, so that a body that is refused anyway is never sent. */
function waitsForContinue({ headers, httpVersion }: IncomingMessage): boolean {
  return headers.expect !== undefined && httpVersion === '1.1' && continuePattern.test(headers.expect)
}

function once(work: () => void): () => void {
  let isDone = false
  return () => {
    if (!isDone) work()
    isDone = true
  }
}
