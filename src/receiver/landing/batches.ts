import { setTimeout as delay } from 'node:timers/promises'
import { afterThisTurn } from '../../platform/after-this-turn.ts'
import { withDeadline } from '../../platform/deadline.ts'
import { rowsForSecondStatement } from '../../platform/gather.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import type { DeliveryInFlight, LaneName, Taken } from './in-flight.ts'
import { landBatch } from './land-batch.ts'
import { landInParts } from './land-in-parts.ts'
import { landingDeadlineMs, returnFailed, returnFlood, type BatchDeps } from './returning.ts'

export type BatchesDeps = BatchDeps & {
  /** Pauses after work of this duration, if acknowledging needs the machine. */
  giveWay: (workedMs: number, signal: AbortSignal) => Promise<void>
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

/** `failures`: how many batches have failed since one landed. */
type Lane = { name: LaneName; writing: number; maxWriting: number; failures: number; batchRows: number }

function newLane(name: LaneName, maxWriting: number): Lane {
  return { name, writing: 0, maxWriting, failures: 0, batchRows: maxBatchRows }
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
        (lane.writing < lane.maxWriting && inFlight.countReady(lane.name) >= rowsForSecondStatement)
      ) {
        const taken = inFlight.takeBatch(lane.name, lane.batchRows)
        if (!taken) break
        write(lane, taken).catch((error: unknown) =>
          logger.error(
            { err: error, deliveries: taken.batch.length },
            'unexpected error while landing a batch: its deliveries stay in memory until this process ends',
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
    const startedMs = performance.now()
    lane.writing += 1
    try {
      const [isLanded] = await Promise.all([landOrReturn(lane, batch), flood.length > 0 && returnFlood(deps, flood)])
      if (isLanded) await deps.giveWay(performance.now() - startedMs, signal)
      else await delay(jitteredPauseMs(lane.failures, failurePause, Math.random), undefined, { signal }).catch(() => {})
    } finally {
      lane.writing -= 1
      pump()
    }
  }

  /** Returns false if the batch failed as a whole. What it has not written is returned to the inbox then. */
  const landOrReturn = async (lane: Lane, batch: readonly DeliveryInFlight[]): Promise<boolean> => {
    if (batch.length === 0) return true
    try {
      // landBatch() returns a failure. landInParts() throws it if Postgres itself has failed.
      const landed = landBatch(deps, batch).then((failed) => failed && landInParts(deps, failed))
      await withDeadline(landed, landingDeadlineMs, 'landing a batch')
    } catch (error) {
      lane.failures += 1
      // A batch that is too much for Postgres as a whole may land in parts.
      lane.batchRows = Math.max(1, Math.floor(batch.length / 2))
      logger.error(
        { err: error, deliveries: batch.length, failures: lane.failures },
        'a batch could not be landed and is returned to the inbox',
      )
      await returnFailed(deps, lane.name, batch, error)
      return false
    }
    lane.failures = 0
    lane.batchRows = Math.min(maxBatchRows, lane.batchRows * 2)
    return true
  }

  return {
    wake,
    // Half a batch waits only when the machine cannot keep up.
    isBehind: () => inFlight.countReady('fresh') + inFlight.countReady('again') >= maxBatchRows / 2,
    idle: () => {
      whenIdle ??= Promise.withResolvers()
      wake()
      return whenIdle.promise
    },
  }
}
