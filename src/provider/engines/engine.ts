import { z } from 'zod'
import { type Output, outputSchema } from '../../wire/schemas.ts'
import { engineChoiceSchema, type RemoteJob, remoteJobSchema } from '../domain/engine-choice.ts'

/** The file behind a link of the input. It is kept on disk until the job ends. */
const referenceSchema = z.object({
  /** The input key of the link: image_url, image_urls, video_urls or audio_urls. */
  field: z.string(),
  /** Counted from 0 within its field. */
  position: z.int(),
  kind: z.enum(['image', 'video', 'audio']),
  path: z.string(),
  /** Detected from the file's bytes. A sound may use a video container. */
  contentType: z.string(),
  sha256: z.string(),
})
export type Reference = z.infer<typeof referenceSchema>

/** The place of a reference in the input, for messages: `input.image_urls[1]`. */
export function placeOf({ field, position }: Pick<Reference, 'field' | 'position'>): string {
  return field.endsWith('s') ? `input.${field}[${position}]` : `input.${field}`
}

/** A job as the engine's process receives it. */
export const jobSchema = z.object({
  requestId: z.string(),
  /** The slug of the request. Local engines derive every byte of the result from it, `input` and `references`. */
  model: z.string(),
  /** Validated against the model's input_schema, defaults filled in. */
  input: z.record(z.string(), z.unknown()),
  /** In the order of the input. */
  references: z.array(referenceSchema),
  /** Folder for the results, which are served under `mediaUrl`. */
  mediaDir: z.string(),
  mediaUrl: z.string(),
  /** The remote job that already runs for this request. */
  remoteJob: remoteJobSchema.nullish(),
})

export type EngineJob = z.infer<typeof jobSchema> & {
  /** Stores the remote job with the request. Resolves when it is committed. */
  keepRemoteJob?: (remoteJob: RemoteJob) => Promise<void>
}

/** Reports the progress of a job: a whole percentage, and a line for the request's logs. */
export type Report = (progressPercent: number, logLine?: string) => Promise<void>

/**
 * Makes media for one request, without access to queues or credits. An engine stops soon after `signal` aborts. It
 * throws an EngineError for a failure that the client may see.
 */
export type Engine = (job: EngineJob, report: Report, signal: AbortSignal) => Promise<Output>

/** A failure whose message may be shown to a client (spec, FAILED: sanitized). The cause is only for the log. */
export class EngineError extends Error {
  override name = 'EngineError'
  code = 'GENERATION_FAILED' as const
  /** True if the same job may succeed a little later, so that a retry is useful. */
  transient: boolean
  constructor(message: string, { cause, transient = false }: { cause?: unknown; transient?: boolean } = {}) {
    super(message, { cause })
    this.transient = transient
  }
}

/** The reason of an abort. With `discard` the result is no longer wanted, so a remote job must be canceled too. */
export class EngineStop extends Error {
  override name = 'EngineStop'
  code = 'engine_stop' as const
  discard: boolean
  constructor(message: string, { discard }: { discard: boolean }) {
    super(message)
    this.discard = discard
  }
}

/** True if an abort for this reason discards the result. A generation that took too long has failed. */
export function isDiscarded(reason: unknown): boolean {
  if (reason instanceof EngineStop) return reason.discard
  return reason instanceof Error && reason.name === 'TimeoutError'
}

/** The messages between the provider and its engine process. */

export const orderSchema = z.discriminatedUnion('kind', [
  /** `token` is the bearer token of a remote engine. It is never part of settings or rows. */
  z.object({
    kind: z.literal('run'),
    run: z.int(),
    engine: engineChoiceSchema,
    token: z.string().optional(),
    job: jobSchema,
  }),
  z.object({ kind: z.literal('abort'), run: z.int(), discard: z.boolean() }),
  /** Answers `remote_job`. */
  z.object({ kind: z.literal('remote_job_kept'), run: z.int(), isKept: z.boolean() }),
])
export type Order = z.input<typeof orderSchema>

export const reportSchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('progress'), run: z.int(), percent: z.number(), line: z.string().optional() }),
  z.object({ kind: z.literal('remote_job'), run: z.int(), remoteJob: remoteJobSchema }),
  z.object({ kind: z.literal('done'), run: z.int(), output: outputSchema }),
  /**
   * `forClient` is the message of an EngineError for the client, and whether a retry may succeed. `detail` is for the
   * log.
   */
  z.object({
    kind: z.literal('failed'),
    run: z.int(),
    detail: z.string(),
    forClient: z.object({ message: z.string(), transient: z.boolean() }).optional(),
  }),
])
export type EngineReport = z.infer<typeof reportSchema>
