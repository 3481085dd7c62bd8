import { sha256Hex } from './delivery.ts'
import { parseTraceparent } from './traceparent.ts'

/** A delivery as its trace knows it; both are stored with it. */
export type Traced = { deliveryId: string; traceparent?: string | undefined }

/** One try to write what a delivery says. */
export type TracedLanding = {
  requestId: string
  webhookId: string
  status: string
  media: number
  outcome: string
  /** A code, never what was to be written: a trace leaves the house. */
  failure?: string | undefined
  ms: number
}

/** Gets what becomes of deliveries once it is over; there is none while nobody asks for traces. */
export type DeliveryTraces = {
  landed: (of: Traced, landing: TracedLanding) => void
}

/**
 * The trace of a delivery: that of its `traceparent`, where the provider sent a
 * valid one, else one whose id is the delivery's own, 16 bytes as well. Both are
 * stored with the delivery, and so whoever lands it, another process or a later
 * one, knows its trace without being told.
 */
export function traceOf({ deliveryId, traceparent }: Traced) {
  const parent = traceparent === undefined ? undefined : parseTraceparent(traceparent)
  return { traceId: parent?.traceId ?? deliveryId.replaceAll('-', ''), parent }
}

/** The span of the arrival that was stored, under which landing stands: derived for the same reason. Other arrivals of a delivery have others. */
export function storedSpanId(deliveryId: string): string {
  return sha256Hex(deliveryId).slice(0, 16)
}

/** For its lines of the log: nothing where neither the provider nor we have a trace of it. */
export function loggedTraceId(of: Traced | undefined, traces: object | undefined): string | undefined {
  if (of === undefined || (of.traceparent === undefined && traces === undefined)) return undefined
  const { traceId, parent } = traceOf(of)
  return parent || traces ? traceId : undefined
}
