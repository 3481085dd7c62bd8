import { setTimeout as delay } from 'node:timers/promises'
import { afterThisTurn } from '../../platform/after-this-turn.ts'
import { withDeadline } from '../../platform/deadline.ts'
import { worthSecondRows } from '../../platform/gather.ts'
import { isConnectionLost } from '../../platform/postgres/errors.ts'
import { failureWords } from '../../platform/postgres/words.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import { returnClaims, type InboxClaim, type ReturnedClaim } from './inbox.ts'
import { landBatch, lockedPauseMs, type Ready, type LandingDeps } from './land-or-put-off.ts'
import { estimateBytes } from './row-to-write.ts'

export type BatchesDeps = LandingDeps & {
  /** Rests after work of this duration, if acknowledging needs the machine. */
  rest: (workedMs: number, signal: AbortSignal) => Promise<void>
  /** Aborts when the process stops. Deliveries that are not written are returned to the inbox. */
  signal: AbortSignal
  /** Called when the delivery is in a batch that is being written. */
  onLanding: (deliveryId: string) => void
  /** Called when the delivery has landed, or got a later time. */
  onEnded: (deliveryId: string) => void
  /** Called whenever batches may have been taken or written. */
  onWritten: () => void
}

export type Batches = {
  add: (ready: Ready) => void
  /** True if so many wait that completing results must wait. */
  isBehind: () => boolean
  isIdle: () => boolean
}

/** The limit of one statement. More rows save little, and a refused batch takes longer to halve. */
const maxBatch = { rows: 500, bytes: 8 * 1024 * 1024 }
/** Deliveries of one request that may wait. The rest of a flood is due later, this many per second. */
const maxOfRequest = 4
/** The pause after Postgres failed. */
const failurePause = { baseMs: 250, capMs: 5000 }

type Failed = { error: unknown; claims: readonly InboxClaim[] }

/** `writing`: the number of batches that are being written. `failures`: how many have failed since one landed. */
type Lane = { waiting: Ready[]; writing: number; maxWriting: number; failures: number; batchRows: number }

function newLane(maxWriting: number): Lane {
  return { waiting: [], writing: 0, maxWriting, failures: 0, batchRows: maxBatch.rows }
}

/**
 * Creates the batches that land deliveries. Deliveries that arrive while a batch is being written form the next one.
 * Deliveries that were claimed before, in this row of the inbox or in an earlier one, have their own lane, so that no
 * fresh one waits for one that was put off or is replayed. Each lane halves its batches by its own failures.
 */
export function createBatches(deps: BatchesDeps): Batches {
  const { db, time, logger, signal } = deps
  const fresh = newLane(2)
  const again = newLane(1)
  const lanes = [fresh, again]
  const inFlight = new Set<string>()
  let spreading = 0

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
          logger.error(
            { err: error, deliveries: batch.length },
            'unexpected error while landing a batch: its deliveries may wait until their leases expire',
          )
          next()
        })
      }
    }
    deps.onWritten()
  }
  const pumpAfterThisTurn = afterThisTurn(pump)

  /** Takes one delivery per request, the oldest. Two batches with the same request would wait for each other. */
  const takeBatch = (lane: Lane): Ready[] => {
    const batch: Ready[] = []
    const flood: ReturnedClaim[] = []
    const left: Ready[] = []
    const places = new Map<string, number>()
    let bytes = 0
    for (const one of lane.waiting) {
      const { claimed, landing } = one
      const place = places.get(landing.requestId) ?? 0
      places.set(landing.requestId, place + 1)
      if (place >= maxOfRequest) {
        flood.push({ ...claimed, pauseMs: Math.min(Math.floor(place / maxOfRequest), 300) * 1000 })
      } else if (batch.length < lane.batchRows && bytes < maxBatch.bytes && !inFlight.has(landing.requestId)) {
        inFlight.add(landing.requestId)
        bytes += estimateBytes(landing)
        batch.push(one)
        deps.onLanding(claimed.deliveryId)
      } else left.push(one)
    }
    lane.waiting = left
    if (flood.length > 0) spread(flood)
    return batch
  }

  /** Returns the deliveries of one request beyond `maxOfRequest` to the inbox, with later times. */
  const spread = (flood: readonly ReturnedClaim[]) => {
    spreading += 1
    logger.info({ deliveries: flood.length }, 'spreading many deliveries of one request over later seconds')
    const next = () => {
      spreading -= 1
      pump()
    }
    giveBack(flood).then(next, next)
  }

  const giveBack = async (claims: readonly ReturnedClaim[], trouble?: string) => {
    for (const { deliveryId } of claims) deps.onEnded(deliveryId)
    await returnClaims(db, claims, { now: time(), trouble }).catch((error: unknown) =>
      logger.warn(
        { err: error, deliveries: claims.length },
        'claimed deliveries could not be returned to the inbox, their leases will expire',
      ),
    )
  }

  const write = async (lane: Lane, batch: readonly Ready[]): Promise<void> => {
    const started = performance.now()
    const failure = await land(lane, batch)
    if (failure) await returnFailed(lane, batch, failure)
    for (const { landing } of batch) inFlight.delete(landing.requestId)
    if (!failure) return deps.rest(performance.now() - started, signal)
    await delay(jitteredPauseMs(lane.failures, failurePause, Math.random), undefined, { signal }).catch(() => {})
  }

  /** Lands a batch. Returns the error of a batch that failed as a whole, with the deliveries that are still held. */
  const land = async (lane: Lane, batch: readonly Ready[]): Promise<Failed | undefined> => {
    const left = new Map(batch.map(({ claimed }) => [claimed.deliveryId, claimed]))
    const onReturned = (id: string) => {
      if (left.delete(id)) deps.onEnded(id)
    }
    const cut = new AbortController()
    try {
      const written = landBatch({ ...deps, onReturned, cut: cut.signal }, batch)
      // Far beyond any landing. A statement that is lost with its connection must not block a lane forever.
      await withDeadline(written, 30_000, 'landing a batch')
      lane.failures = 0
      lane.batchRows = Math.min(maxBatch.rows, lane.batchRows * 2)
      for (const id of left.keys()) deps.onEnded(id)
      return undefined
    } catch (error) {
      // After its deadline the batch must stop, since another process may land the same deliveries.
      cut.abort()
      lane.failures += 1
      // A batch that is too much for Postgres as a whole may land in parts.
      lane.batchRows = Math.max(1, Math.floor(batch.length / 2))
      return { error, claims: [...left.values()] }
    }
  }

  const returnFailed = async (lane: Lane, batch: readonly Ready[], { error, claims }: Failed): Promise<void> => {
    logger.error(
      { err: error, deliveries: batch.length, failures: lane.failures },
      'a batch could not be landed and is returned to the inbox',
    )
    // A stopping process retries nothing, so everything that waits is returned.
    const unwritten = signal.aborted ? lane.waiting.splice(0).map(({ claimed }) => claimed) : []
    // A delivery that fails alone, but not with its connection, gets a later time, so that others do not fail with it.
    const comesLater = batch.length === 1 && !signal.aborted && !isConnectionLost(error)
    const pauseMs = comesLater ? lockedPauseMs(batch[0]?.claimed.claims ?? 1) : 0
    const returned = [...claims, ...unwritten].map((claim) => ({ ...claim, pauseMs }))
    await giveBack(returned, signal.aborted ? undefined : failureWords(error))
  }

  return {
    add: (ready) => {
      const lane = ready.claimed.claims > 1 ? again : fresh
      lane.waiting.push(ready)
      pumpAfterThisTurn()
    },
    // More than half a batch waits only when the machine cannot keep up.
    isBehind: () => fresh.waiting.length + again.waiting.length >= 250,
    isIdle: () => spreading === 0 && lanes.every(({ waiting, writing }) => waiting.length === 0 && writing === 0),
  }
}
