import { environmentsOf } from '../domain/keys.ts'
import { loggedTraceId } from '../domain/trace.ts'
import type { DeliveryInFlight } from './in-flight.ts'
import type { LandingDeps } from './landing-deps.ts'
import type { BatchDeps } from './returning.ts'
import { landingLockWaitMs, landUntilFailure, type LandingOutcome } from './two-statements.ts'

/** `open`: the deliveries that a failed statement has not landed. */
export type Failed = {
  open: DeliveryInFlight[]
  isAnyLanded: boolean
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
  waitMs: number = landingLockWaitMs,
): Promise<Failed | undefined> {
  const startedMs = performance.now()
  const at = { now: deps.time(), environments: environmentsOf(deps.keys()), waitMs }
  const landings = batch.map(({ landing }) => landing)
  const { outcomes, failure } = await landUntilFailure(deps.db, landings, at)
  const open: DeliveryInFlight[] = []
  for (const one of batch) {
    const outcome = outcomes.get(one.landing.request_id) ?? 'raced'
    // Outcomes that the short statement committed are final, also if a later statement failed.
    if (failure && outcome === 'raced') {
      open.push(one)
      continue
    }
    deps.inFlight.release(one)
    report(deps, one, outcome, startedMs)
  }
  return failure && { open, isAnyLanded: open.length < batch.length, ...failure, waitMs, startedMs }
}

/** Reports the outcome of a landing to the log, the metrics and the traces. */
function report(deps: LandingDeps, one: DeliveryInFlight, outcome: LandingOutcome, startedMs: number): void {
  const { claimed, landing } = one
  // The line of the arrival is enough for a landing at the first try. A raced delivery is due again.
  const isAtFirstTry = outcome === 'landed' && claimed.claims === 1 && claimed.failures === 0
  if (!isAtFirstTry && outcome !== 'raced') {
    const { status, media, media_complete } = landing
    const result = { status, outcome, media: media.length, media_complete }
    deps.logger.info({ ...idsOf(deps, one), ...result }, 'delivery processed')
  }
  deps.onProcessed({ landing, outcome, receivedAt: claimed.receivedAt })
  trace(deps, one, startedMs, { outcome })
}

/** Returns the ids of a delivery for the log. */
export function idsOf({ traces }: LandingDeps, { claimed, landing }: DeliveryInFlight) {
  return {
    delivery_id: claimed.deliveryId,
    webhook_id: claimed.webhookId,
    request_id: landing.request_id,
    trace_id: loggedTraceId(claimed, traces),
  }
}

/** `failure`: only the code, since Postgres's message may quote values. */
type TraceEnd = { outcome: LandingOutcome } | { outcome: 'failed'; failure: string }

export function trace(
  { traces }: LandingDeps,
  { claimed, landing }: DeliveryInFlight,
  startedMs: number,
  end: TraceEnd,
): void {
  const { request_id: requestId, status, media } = landing
  const ms = performance.now() - startedMs
  traces?.landed(claimed, { requestId, webhookId: claimed.webhookId, status, media: media.length, ms, ...end })
}
