import type { SpanParent } from '../domain/trace.ts'

/** The place of a span: below a parent span, or first in its trace. */
export type SpanRoot = { traceId: string; parent: SpanParent | undefined }

/** A span that has ended. It is written whole, so that no work for it happens before the answer. */
export type WrittenSpan = {
  name: string
  kind: 'server' | 'client' | 'consumer' | 'internal'
  /** Without a root, the span starts a new trace. */
  root: SpanRoot | undefined
  /** An id that is already known; a random one by default. */
  spanId?: string | undefined
  startMs: number
  endMs: number
  attributes: Readonly<Record<string, string | number | boolean | undefined>>
  /** Set if the work of the span failed. */
  error?: { type: string; message?: string | undefined } | undefined
}

export type SpanWriter = {
  /** Writes a span. Never waits and never throws. Returns the root for spans within it. */
  write: (span: WrittenSpan) => SpanRoot
  /** Returns the sampling decision for this root. It depends only on the trace id and the parent, in every process. */
  isSampled: (root: SpanRoot) => boolean
  /** Sends the remaining spans, within the given time. */
  close: (withinMs: number) => Promise<void>
}
