import { sha256Hex } from './delivery.ts'

/** The stored parts of a delivery from which its trace id is derived. */
export type Traced = { deliveryId: string; traceparent?: string | undefined }

/** One try to land a delivery, as recorded in its trace. */
export type TracedLanding = {
  requestId: string
  webhookId: string
  status: string
  media: number
  outcome: string
  /** An error code, never the refused data: traces leave the system. */
  failure?: string | undefined
  ms: number
}

/** Receives the end of each landing. Undefined while tracing is off. */
export type DeliveryTraces = {
  landed: (of: Traced, landing: TracedLanding) => void
}

/**
 * Returns the trace id of a delivery: from its valid `traceparent`, otherwise the delivery's own id, which also has 16
 * bytes. Both are stored with the delivery, so every process that lands it derives the same trace.
 */
export function traceOf({ deliveryId, traceparent }: Traced) {
  const parent = traceparent === undefined ? undefined : parseTraceparent(traceparent)
  return { traceId: parent?.traceId ?? deliveryId.replaceAll('-', ''), parent }
}

/**
 * Returns the id of the span of the first arrival. It is derived, so that a landing in any process can be its child.
 */
export function storedSpanId(deliveryId: string): string {
  return sha256Hex(deliveryId).slice(0, 16)
}

/** Returns the trace id for log lines; undefined if neither the provider nor the receiver traces this delivery. */
export function loggedTraceId(of: Traced | undefined, traces: object | undefined): string | undefined {
  if (of === undefined || (of.traceparent === undefined && traces === undefined)) return undefined
  const { traceId, parent } = traceOf(of)
  return parent || traces ? traceId : undefined
}

/** The parent of one of our spans, with its sampling decision. */
export type SpanParent = { traceId: string; spanId: string; isSampled: boolean }

const form = /^([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?=$|-)/
/** Version 00 ends with its flags. Later versions may append fields. */
const lengthOf00 = 55

/** Parses a `traceparent` (W3C Trace Context). Returns undefined for a malformed one, which is ignored. */
export function parseTraceparent(text: string): SpanParent | undefined {
  const [, version = 'ff', traceId = '', spanId = '', flags = ''] = form.exec(text) ?? []
  if (version === 'ff' || (version === '00' && text.length !== lengthOf00)) return undefined
  return { traceId, spanId, isSampled: (Number.parseInt(flags, 16) & 1) === 1 }
}
