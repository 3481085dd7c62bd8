import { setTimeout as delay } from 'node:timers/promises'
import { afterThisTurn } from '../../platform/after-this-turn.ts'
import { withDeadline } from '../../platform/deadline.ts'
import { worthSecondRows } from '../../platform/gather.ts'
import { isConnectionLost } from '../../platform/postgres/errors.ts'
import { failureWords } from '../../platform/postgres/words.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import type { DeliveryInFlight, LaneName, Returned, Taken } from './in-flight.ts'
import { landBatch } from './land-batch.ts'
import { landInParts, lockedPauseMs, returnToInbox, type BatchDeps } from './refused.ts'

export type BatchesDeps = BatchDeps & {
  /** Rests after work of this duration, if acknowledging needs the machine. */
  rest: (workedMs: number, signal: AbortSignal) => Promise<void>
  /** Aborts when the process stops. Deliveries that are not written are returned to the inbox. */
  signal: AbortSignal
}

export type Batches = {
  /** Begins batches of the deliveries that are ready, at the end of this turn of the event loop. */
  wake: () => void
  /** True if so many wait that completing results must wait. */
  isBehind: () => boolean
  /** Resolves when no delivery is in flight: each has landed or was returned to the inbox. */
  idle: () => Promise<void>
}

/** The limit of one statement. More rows save little, and a refused batch takes longer to halve. */
export const maxBatchRows = 500
/** The pause after Postgres failed. */
const failurePause = { baseMs: 250, capMs: 5000 }

/** Far beyond any landing. A statement that is lost with its connection must not block a lane forever. */
const deadlineMs = 30_000

/** `failures`: how many batches have failed since one landed. */
type Lane = { name: LaneName; writing: number; maxWriting: number; failures: number; batchRows: number }

function newLane(name: LaneName, maxWriting: number): Lane {
  return { name, writing: 0, maxWriting, failures: 0, batchRows: maxBatchRows }
}

async function landAll(deps: BatchesDeps, batch: readonly DeliveryInFlight[]): Promise<void> {
  const failed = await landBatch(deps, batch)
  if (failed) await landInParts(deps, failed)
}

/**
 * Creates the batches that land the deliveries in flight. Deliveries that become ready while a batch is being written
 * form the next one. Each lane halves its batches by its own failures.
 */
export function createBatches(deps: BatchesDeps): Batches {
  const { inFlight, logger, signal } = deps
  const lanes = [newLane('fresh', 2), newLane('again', 1)]
  let whenIdle: PromiseWithResolvers<void> | undefined

  const pump = () => {
    for (const lane of lanes) {
      while (
        lane.writing === 0 ||
        (lane.writing < lane.maxWriting && inFlight.countReady(lane.name) >= worthSecondRows)
      ) {
        const taken = inFlight.takeBatch(lane.name, lane.batchRows)
        if (!taken) break
        write(lane, taken).catch((error: unknown) =>
          logger.error(
            { err: error, deliveries: taken.batch.length },
            'unexpected error while landing a batch: its deliveries may wait until their leases expire',
          ),
        )
      }
    }
    if (!inFlight.isEmpty() || lanes.some(({ writing }) => writing > 0)) return
    whenIdle?.resolve()
    whenIdle = undefined
  }
  const wake = afterThisTurn(pump)

  const write = async (lane: Lane, { batch, flood }: Taken): Promise<void> => {
    const started = performance.now()
    lane.writing += 1
    try {
      const spreading = flood.length > 0 ? spread(flood) : undefined
      const isLanded = await land(lane, batch)
      if (spreading) await spreading
      if (isLanded) await deps.rest(performance.now() - started, signal)
      else await delay(jitteredPauseMs(lane.failures, failurePause, Math.random), undefined, { signal }).catch(() => {})
    } finally {
      lane.writing -= 1
      pump()
    }
  }

  /** Returns deliveries of one request to the inbox, with later times. */
  const spread = (flood: readonly Returned[]): Promise<void> => {
    logger.info({ deliveries: flood.length }, 'spreading many deliveries of one request over later seconds')
    return returnOrExpire(flood)
  }

  /** Returns deliveries to the inbox. If that fails or takes too long, their leases expire. */
  const returnOrExpire = (returned: readonly Returned[], trouble?: string): Promise<void> =>
    withDeadline(returnToInbox(deps, returned, trouble), deadlineMs, 'returning deliveries').catch((error: unknown) =>
      logger.warn(
        { err: error, deliveries: returned.length },
        'claimed deliveries could not be returned to the inbox, their leases will expire',
      ),
    )

  /** Returns false if the batch failed as a whole. What it has not written is returned to the inbox then. */
  const land = async (lane: Lane, batch: readonly DeliveryInFlight[]): Promise<boolean> => {
    if (batch.length === 0) return true
    try {
      await withDeadline(landAll(deps, batch), deadlineMs, 'landing a batch')
    } catch (error) {
      lane.failures += 1
      // A batch that is too much for Postgres as a whole may land in parts.
      lane.batchRows = Math.max(1, Math.floor(batch.length / 2))
      await returnFailed(lane, batch, error)
      return false
    }
    lane.failures = 0
    lane.batchRows = Math.min(maxBatchRows, lane.batchRows * 2)
    for (const one of batch) inFlight.release(one)
    return true
  }

  const returnFailed = async (lane: Lane, batch: readonly DeliveryInFlight[], error: unknown): Promise<void> => {
    logger.error(
      { err: error, deliveries: batch.length, failures: lane.failures },
      'a batch could not be landed and is returned to the inbox',
    )
    // The others were put off or parked. Those that the batch has landed are gone from the inbox.
    const left = batch.filter(({ mode }) => mode === 'LANDING')
    // A stopping process retries nothing, so everything that waits is returned.
    const unwritten = signal.aborted ? inFlight.readyIn(lane.name) : []
    // A delivery that fails alone, but not with its connection, gets a later time, so that others do not fail with it.
    const comesLater = batch.length === 1 && !signal.aborted && !isConnectionLost(error)
    const pauseMs = comesLater ? lockedPauseMs(batch[0]?.claimed.claims ?? 1) : 0
    const returned = [...left, ...unwritten].map((one) => ({ one, pauseMs }))
    await returnOrExpire(returned, signal.aborted ? undefined : failureWords(error))
  }

  return {
    wake,
    // More than half a batch waits only when the machine cannot keep up.
    isBehind: () => inFlight.countReady('fresh') + inFlight.countReady('again') >= 250,
    idle: () => {
      whenIdle ??= Promise.withResolvers()
      wake()
      return whenIdle.promise
    },
  }
}
