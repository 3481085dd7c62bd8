import type { Output } from '../../wire/schemas.ts'
import type { RemoteJob } from '../domain/engine-choice.ts'

/** A file that the client gave a link to. It stays on this machine until the job ends. */
export type Reference = {
  /** The key of the input that held the link: image_url, image_urls, video_urls or audio_urls. */
  field: string
  /** Counted from 0 within its field. */
  position: number
  kind: 'image' | 'video' | 'audio'
  path: string
  /** By the file's bytes. A sound may come in a container of videos. */
  contentType: string
  sha256: string
}

/** The place of a reference in the input, to name it in messages: `input.image_urls[1]`. */
export function placeOf({ field, position }: Pick<Reference, 'field' | 'position'>): string {
  return field.endsWith('s') ? `input.${field}[${position}]` : `input.${field}`
}

export type EngineJob = {
  requestId: string
  /** The slug of the request; with `input` and `references` it decides every byte that is made. */
  model: string
  /** Validated against the model's input_schema, defaults filled in. */
  input: Readonly<Record<string, unknown>>
  /** In the order of the input. */
  references: readonly Reference[]
  /** Folder for what is made; served under `mediaUrl`. */
  mediaDir: string
  mediaUrl: string
  /** The job that another server already runs for this request. */
  remoteJob?: RemoteJob | null
  /** Keeps the job of another server with the request; settles when it is committed. */
  keepRemoteJob?: (remoteJob: RemoteJob) => Promise<void>
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

/** The reason of an abort. With `discard` nobody will want the result: a job on another server must be canceled too. */
export class EngineStop extends Error {
  override name = 'EngineStop'
  code = 'engine_stop' as const
  discard: boolean
  constructor(message: string, { discard }: { discard: boolean }) {
    super(message)
    this.discard = discard
  }
}

/** Whether an abort for this reason discards the result; a generation that took too long has failed. */
export function isDiscarded(reason: unknown): boolean {
  if (reason instanceof EngineStop) return reason.discard
  return reason instanceof Error && reason.name === 'TimeoutError'
}
