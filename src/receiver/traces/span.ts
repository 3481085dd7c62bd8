import type { SpanParent } from '../domain/traceparent.ts'

/** What a span belongs to: somebody's span, or nobody's, as the first of its trace. */
export type SpanRoot = { traceId: string; parent: SpanParent | undefined }

/** A span that has ended. It is written whole, with its times, so that nothing is begun before an answer. */
export type WrittenSpan = {
  name: string
  kind: 'server' | 'client' | 'consumer' | 'internal'
  /** Without it, it is a trace of its own. */
  root: SpanRoot | undefined
  /** Where it is known elsewhere too; else any. */
  spanId?: string | undefined
  startMs: number
  endMs: number
  attributes: Readonly<Record<string, string | number | boolean | undefined>>
  /** That what it tells of failed, and how. */
  error?: { type: string; message?: string | undefined } | undefined
}

export type SpanWriter = {
  /** Never waits and never throws. Answers what spans within it belong to. */
  write: (span: WrittenSpan) => SpanRoot
  /** What is decided for a span of this root, in this process or another: by its trace id and its parent alone. */
  isSampled: (root: SpanRoot) => boolean
  /** Sends what is left, for at most so long. */
  close: (withinMs: number) => Promise<void>
}
