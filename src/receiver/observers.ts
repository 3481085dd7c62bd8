import { createLineBudget } from '../platform/line-budget.ts'
import type { Logger } from '../platform/logger.ts'
import { sourceLabel } from './domain/source.ts'
import { loggedTraceId } from './domain/trace.ts'
import type { ArrivalLog, ArrivalLogDeps } from './intake/arrival-log.ts'
import type { Quarantine } from './intake/quarantine.ts'
import type { Arrival, WebhookDeps } from './intake/webhook.ts'
import type { LandingDeps } from './landing/land-or-put-off.ts'
import { wayOf } from './landing/row-to-write.ts'
import type { ReceiverMetrics } from './metrics.ts'
import type { Traces } from './traces/traces.ts'

type ArrivalDeps = { arrivalLog: ArrivalLog; metrics: ReceiverMetrics; traces: Traces | undefined }

type ProcessedDeps = {
  metrics: ReceiverMetrics
  clock: () => Date
  wakeFeed: () => void
  wakeFollowUps: (keyName: string) => void
}

/** Counts a landed result and its delay, and wakes the feed. If the result is incomplete, wakes the follow-ups, too. */
export function noteProcessed({ metrics, clock, wakeFeed, wakeFollowUps }: ProcessedDeps): LandingDeps['onProcessed'] {
  return ({ landing, outcome, receivedAt }) => {
    if (outcome !== 'landed') return
    wakeFeed()
    if (!landing.mediaComplete) wakeFollowUps(landing.keyName)
    metrics.landed.inc({ status: landing.status, source: wayOf(landing), ...sourceLabel(landing.sourceName) })
    if (receivedAt) metrics.landingSeconds.observe(Math.max(0, (clock().getTime() - receivedAt.getTime()) / 1000))
  }
}

/** Records the sender of an authentic delivery, and counts its bytes. */
export function noteAuthentic(
  { noteSender }: Quarantine,
  metrics: ReceiverMetrics,
): NonNullable<ArrivalLogDeps['onWritten']> {
  return ({ keyName, remote, arrivedAt: at, outcome, bytes = 0 }) => {
    if (keyName === undefined) return
    // A duplicate may be a replay by a stranger who recorded a delivery, so it makes no sender known.
    if (outcome !== 'accepted' && outcome !== 'parked') return
    noteSender({ keyName, remote, at })
    metrics.storedBytes.inc({ key_name: keyName }, bytes)
  }
}

/** Counts an answered arrival and records it in the arrival log; returns its line of the process's log. */
export function noteArrival({ arrivalLog, metrics, traces }: ArrivalDeps): WebhookDeps['onArrival'] {
  return (arrival) => {
    metrics.arrivals.inc({ outcome: arrival.outcome, reason: arrival.reason ?? '', ...sourceLabel(arrival.sourceName) })
    if (arrival.status === 200) metrics.ackSeconds.observe(arrival.ackMs / 1000)
    if (arrival.timestampMismatch) metrics.timestampMismatches.inc()
    // Arrivals that any client can cause get a line and a span only if they get a row.
    if (!arrivalLog.record(arrival)) return 'silent'
    traces?.arrived(arrival)
    return { message: 'webhook answered', fields: logLine(arrival, traces) }
  }
}

/** Logs one line for all arrivals that got no line of their own. */
export function logFolded(logger: Logger): ArrivalLogDeps['onFolded'] {
  return ({ arrivals, ...cause }) =>
    logger.info({ ...cause, left_out: arrivals }, 'too many webhooks without a verified signature: lines were left out')
}

/** Logs internal errors, within a budget of lines, so that a bug met by every delivery does not fill the disk. */
export function logFault(logger: Logger): WebhookDeps['onFault'] {
  const mayLog = createLineBudget({ logger, what: 'deliveries that met an internal error' })
  return (error, { webhookId, deliveryId }) => {
    if (mayLog())
      logger.error(
        { err: error, webhook_id: webhookId, delivery_id: deliveryId },
        'internal error: a delivery was not acknowledged',
      )
  }
}

/** Returns the log line of an arrival, with the ids that a person may search for. */
function logLine(arrival: Arrival, traces: object | undefined): Record<string, unknown> {
  const { keyName, deliveryId, skewSeconds, traceparent } = arrival
  const isTraced = keyName !== undefined && deliveryId !== undefined
  return {
    status: arrival.status,
    outcome: arrival.outcome,
    reason: arrival.reason,
    ms: Math.round(arrival.ackMs * 10) / 10,
    webhook_id: arrival.webhookId,
    delivery_id: deliveryId,
    request_id: arrival.requestId,
    key_name: keyName,
    ...sourceLabel(arrival.sourceName),
    remote: arrival.remote,
    bytes: arrival.bytes,
    skew_seconds: skewSeconds,
    trace_id: isTraced ? loggedTraceId({ deliveryId, traceparent }, traces) : undefined,
  }
}
