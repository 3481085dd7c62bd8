import type { Output } from '../../wire/schemas.ts'

export type EngineJob = {
  requestId: string
  /** The slug of the request; with `input` it decides every byte that is made. */
  model: string
  /** Validated against the model's input_schema, defaults filled in. */
  input: Readonly<Record<string, unknown>>
  /** Folder for what is made; served under `mediaUrl`. */
  mediaDir: string
  mediaUrl: string
}

/** Tells how far a job is: a whole percentage, and a line for the request's logs. */
export type Report = (progressPercent: number, logLine?: string) => Promise<void>

/**
 * Makes media for one request. Engines are plug-ins: they know nothing of queues
 * or credits. An engine stops soon after `signal` aborts and throws an
 * EngineError for a failure that the client may see.
 */
export type Engine = {
  name: string
  run: (job: EngineJob, report: Report, signal: AbortSignal) => Promise<Output>
}

/** A failure whose message is safe to show to a client (spec, FAILED: sanitized); the cause is for the log. */
export class EngineError extends Error {
  override name = 'EngineError'
  code = 'GENERATION_FAILED' as const
  /** Whether the same job may well succeed a little later: another attempt is worth it. */
  transient: boolean
  constructor(message: string, { cause, transient = false }: { cause?: unknown; transient?: boolean } = {}) {
    super(message, { cause })
    this.transient = transient
  }
}
