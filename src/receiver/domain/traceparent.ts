/** The parent span of a span of ours, with its sampling decision. */
export type SpanParent = { traceId: string; spanId: string; isSampled: boolean }

const form = /^([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?=$|-)/
/** Version 00 ends with its flags. Later versions may append fields. */
const lengthOf00 = 55
const sampledFlag = 1

/** Parses a `traceparent` (W3C Trace Context). Returns undefined for a malformed one, which is ignored. */
export function parseTraceparent(text: string): SpanParent | undefined {
  const [, version, traceId, spanId, flags] = form.exec(text) ?? []
  if (version === undefined || traceId === undefined || spanId === undefined || flags === undefined) return undefined
  if (version === 'ff' || (version === '00' && text.length !== lengthOf00)) return undefined
  return { traceId, spanId, isSampled: (Number.parseInt(flags, 16) & sampledFlag) === sampledFlag }
}
