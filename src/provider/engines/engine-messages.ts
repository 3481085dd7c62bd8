import { z } from 'zod'
import { outputSchema } from '../../wire/schemas.ts'
import { engineChoiceSchema, remoteJobSchema } from '../domain/engine-choice.ts'
import { jobSchema } from './engine.ts'

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
