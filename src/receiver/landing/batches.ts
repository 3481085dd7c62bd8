import { setTimeout as delay } from 'node:timers/promises'
import { afterThisTurn } from '../../platform/after-this-turn.ts'
import { withDeadline } from '../../platform/deadline.ts'
import { isConnectionLost } from '../../platform/postgres/errors.ts'
import { failureWords } from '../../platform/postgres/words.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import { returnClaims, type ReturnedClaim } from './inbox.ts'
import { landBatch, lockedPause, type BatchEnd, type Ready, type WorkerDeps } from './land-batch.ts'
import { bytesOf } from './landing.ts'

export type BatchesDeps = WorkerDeps & {
  /** Rests after so much work, as long as acknowledging needs the machine. */
  rest: (workedMs: number, signal: AbortSignal) => Promise<void>
  /** The process ends: what is not written is given back. */
  signal: AbortSignal
  onBatch?: ((result: BatchEnd | Error) => void) | undefined
  /** The delivery is in a batch that is being written. */
  onLanding: (deliveryId: string) => void
  /** The delivery has landed, or was given another time. */
  onEnded: (deliveryId: string) => void
  /** Called after each batch. */
  onWritten: () => void
}

/** A delivery that waits for a batch. A newer claim may replace `ready` until then. */
export type Pending = { ready: Ready }

export type Batches = {
  add: (waiting: Pending) => void
  /** Whether so many wait that completing results must wait. */
  isBehind: () => boolean
  isIdle: () => boolean
}

/** One statement. Beyond this Postgres gains nothing, and a refused batch takes longer to halve. */
const maxBatch = { rows: 500, bytes: 8 * 1024 * 1024 }
/** A statement costs as much as tens of rows, so a second one beside the first begins with this many. */
const worthSecondRows = 64
/** More than half a batch waits only when the machine cannot keep up. */
const behindRows = 250
/** Deliveries of one request that may wait. The rest of a flood is due later, by a second for each so many. */
const turnsOfRequest = 4
const longestTurnSeconds = 300
/** Far beyond any landing: a statement that is lost with its connection must not hold a lane for good. */
const writingDeadlineMs = 30_000
/** After Postgres failed. */
const failurePause = { baseMs: 250, capMs: 5000 }

/** `writing`: how many batches of the lane are being written. */
type Lane = { waiting: Pending[]; writing: number; maxWriting: number }

/**
 * Lands deliveries in natural batches: all that comes while a batch is being written goes with the next one. Deliveries
 * that were claimed before have a lane of their own, so that no fresh one waits for one that was put off.
 */
export function createBatches(deps: BatchesDeps): Batches {
  const { db, time, logger, signal } = deps
  const fresh: Lane = { waiting: [], writing: 0, maxWriting: 2 }
  const again: Lane = { waiting: [], writing: 0, maxWriting: 1 }
  const lanes = [fresh, again]
  const inFlight = new Set<string>()
  let spreading = 0
  let failures = 0
  let batchRows = maxBatch.rows

  const pump = () => {
    for (const lane of lanes) {
      while (lane.writing === 0 || (lane.writing < lane.maxWriting && lane.waiting.length >= worthSecondRows)) {
        const batch = takeBatch(lane)
        if (batch.length === 0) break
        lane.writing += 1
        const next = () => {
          lane.writing -= 1
          pump()
        }
        write(lane, batch).then(next, (error: unknown) => {
          logger.error({ err: error, deliveries: batch.length }, 'a batch did not end, going on without it')
          next()
        })
      }
    }
    deps.onWritten()
  }
  const pumpAfterThisTurn = afterThisTurn(pump)

  /** The oldest of each request: two batches with the same request would wait for each other. */
  const takeBatch = (lane: Lane): Ready[] => {
    const batch: Ready[] = []
    const flood: ReturnedClaim[] = []
    const left: Pending[] = []
    const places = new Map<string, number>()
    let bytes = 0
    for (const one of lane.waiting) {
      const { claimed, landing } = one.ready
      const place = places.get(landing.requestId) ?? 0
      places.set(landing.requestId, place + 1)
      if (place >= turnsOfRequest) {
        const turnSeconds = Math.min(Math.floor(place / turnsOfRequest), longestTurnSeconds)
        flood.push({ ...claimed, pauseMs: turnSeconds * 1000 })
      } else if (batch.length < batchRows && bytes < maxBatch.bytes && !inFlight.has(landing.requestId)) {
        inFlight.add(landing.requestId)
        bytes += bytesOf(landing)
        batch.push(one.ready)
        deps.onLanding(claimed.deliveryId)
      } else left.push(one)
    }
    lane.waiting = left
    if (flood.length > 0) spread(flood)
    return batch
  }

  /** Gives the deliveries of a flood later times. */
  const spread = (flood: readonly ReturnedClaim[]) => {
    spreading += 1
    logger.info({ deliveries: flood.length }, 'many deliveries of one request take turns')
    const next = () => {
      spreading -= 1
      pump()
    }
    letGo(flood).then(next, next)
  }

  const letGo = async (claims: readonly ReturnedClaim[], trouble?: string) => {
    for (const { deliveryId } of claims) deps.onEnded(deliveryId)
    await returnClaims(db, claims, { now: time(), trouble }).catch((error: unknown) =>
      logger.warn(
        { err: error, deliveries: claims.length },
        'claimed deliveries could not be given back, their leases end by themselves',
      ),
    )
  }

  const write = async (lane: Lane, batch: readonly Ready[]): Promise<void> => {
    const started = performance.now()
    const left = new Map(batch.map(({ claimed }) => [claimed.deliveryId, claimed]))
    const onReturned = (id: string) => {
      if (left.delete(id)) deps.onEnded(id)
    }
    const cut = new AbortController()
    try {
      const written = landBatch({ ...deps, onReturned, cut: cut.signal }, batch)
      const result = await withDeadline(written, writingDeadlineMs, 'landing a batch')
      deps.onBatch?.(result)
      failures = 0
      batchRows = Math.min(maxBatch.rows, batchRows * 2)
      for (const id of left.keys()) deps.onEnded(id)
      for (const {
        landing: { requestId },
      } of batch)
        inFlight.delete(requestId)
      await deps.rest(performance.now() - started, signal)
    } catch (error) {
      // Beyond its deadline it would go on beside the process that lands the same next.
      cut.abort()
      deps.onBatch?.(error instanceof Error ? error : new Error(String(error)))
      failures += 1
      // A batch that is too much for Postgres as a whole may land in parts.
      batchRows = Math.max(1, Math.floor(batchRows / 2))
      logger.error({ err: error, deliveries: batch.length, failures }, 'a batch could not be landed and is given back')
      // A process that ends tries nothing again: all that waits goes back too.
      const unwritten = signal.aborted ? lane.waiting.splice(0).map(({ ready }) => ready.claimed) : []
      // One that fails alone, and not with its connection, comes later, so that no other fails with it at once.
      const comesLater = batch.length === 1 && !signal.aborted && !isConnectionLost(error)
      const pauseMs = comesLater ? jitteredPauseMs(batch[0]?.claimed.claims ?? 1, lockedPause, Math.random) : 0
      const returned = [...left.values(), ...unwritten].map((claim) => ({ ...claim, pauseMs }))
      await letGo(returned, signal.aborted ? undefined : failureWords(error))
      for (const {
        landing: { requestId },
      } of batch)
        inFlight.delete(requestId)
      await delay(jitteredPauseMs(failures, failurePause, Math.random), undefined, { signal }).catch(() => {})
    }
  }

  return {
    add: (waiting) => {
      const lane = waiting.ready.claimed.claims > 1 ? again : fresh
      lane.waiting.push(waiting)
      pumpAfterThisTurn()
    },
    isBehind: () => fresh.waiting.length + again.waiting.length >= behindRows,
    isIdle: () => spreading === 0 && lanes.every(({ waiting, writing }) => waiting.length === 0 && writing === 0),
  }
}
