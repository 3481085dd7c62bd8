import { shortLockWaitMs } from '../../platform/postgres/lock-wait.ts'
import { loggedTraceId } from '../domain/trace.ts'
import type { LandingOutcome } from './effects.ts'
import type { DeliveryInFlight, Returned } from './in-flight.ts'
import { landReports } from './land-reports.ts'
import type { LandingDeps } from './landing-deps.ts'
import { returnOrExpire, type BatchDeps } from './returning.ts'

/** `unlanded`: the deliveries that a failed statement has not landed. */
export type Failed = {
  unlanded: DeliveryInFlight[]
  isAnyAnswered: boolean
  error: unknown
  waitMs: number
  startedMs: number
}

/**
 * Lands a batch of one delivery per request, and releases each delivery that has its outcome. Returns the deliveries
 * that were not landed because Postgres failed.
 */
export async function landBatch(
  deps: BatchDeps,
  batch: readonly DeliveryInFlight[],
  waitMs: number = shortLockWaitMs,
): Promise<Failed | undefined> {
  const startedMs = performance.now()
  const at = { now: deps.time(), keys: deps.keys, waitMs }
  const reports = batch.map(({ report }) => report)
  const { outcomes, failure } = await landReports(deps.db, reports, at)
  const unlanded: DeliveryInFlight[] = []
  const raced: Returned[] = []
  for (const one of batch) {
    const outcome = outcomes.get(one.report.request_id)
    if (outcome === undefined) {
      unlanded.push(one)
      continue
    }
    // Other transactions changed its row at each try. It is due again at once, in the inbox.
    if (outcome === 'raced') raced.push({ one, pauseMs: 0 })
    else deps.inFlight.release(one)
    recordOutcome(deps, one, outcome, startedMs)
  }
  if (raced.length > 0) await returnOrExpire(deps, raced)
  return failure && { unlanded, isAnyAnswered: unlanded.length < batch.length, ...failure, waitMs, startedMs }
}

/** Writes the outcome of a landing to the log, the metrics and the traces. */
function recordOutcome(deps: LandingDeps, one: DeliveryInFlight, outcome: LandingOutcome, startedMs: number): void {
  const { claimed, report } = one
  // The line of the arrival is enough for a landing at the first try. A raced delivery is due again.
  const isAtFirstTry = outcome === 'landed' && claimed.claims === 1 && claimed.failures === 0
  if (!isAtFirstTry && outcome !== 'raced') {
    const { status, media, media_complete } = report
    const result = { status, outcome, media: media.length, media_complete }
    deps.logger.info({ ...idsOf(deps, one), ...result }, 'delivery processed')
  }
  deps.onProcessed({ report, outcome, receivedAt: claimed.receivedAt })
  trace(deps, one, startedMs, { outcome })
}

export function idsOf({ traces }: LandingDeps, { claimed, report }: DeliveryInFlight) {
  return {
    delivery_id: claimed.deliveryId,
    webhook_id: claimed.webhookId,
    request_id: report.request_id,
    trace_id: loggedTraceId(claimed, traces),
  }
}

/** `failure`: only the code, since Postgres's message may quote values. */
type TraceEnd = { outcome: LandingOutcome } | { outcome: 'failed'; failure: string }

export function trace(
  { traces }: LandingDeps,
  { claimed, report }: DeliveryInFlight,
  startedMs: number,
  end: TraceEnd,
): void {
  const { request_id: requestId, status, media } = report
  const ms = performance.now() - startedMs
  traces?.landed(claimed, { requestId, webhookId: claimed.webhookId, status, media: media.length, ms, ...end })
}
