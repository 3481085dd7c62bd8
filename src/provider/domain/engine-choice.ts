import { z } from 'zod'

/**
 * The engine of a request, fixed at submit and stored with the request, without secrets. Requests that are COMPLETED at
 * submit have none.
 */
export const engineChoiceSchema = z.object({
  name: z.string(),
  /** The type of media that the model makes. */
  type: z.enum(['image', 'video', 'audio']),
  settings: z.record(z.string(), z.unknown()),
})
export type EngineChoice = z.infer<typeof engineChoiceSchema>

/** A request's job on a remote engine. Stored with the request, so that another worker can take it over. */
export const remoteJobSchema = z.object({
  /** Null until the engine has accepted the job. */
  url: z.string().nullable(),
  /** True once the engine has lost the job. It gets the job only one more time. */
  isRepeat: z.boolean(),
})
export type RemoteJob = z.infer<typeof remoteJobSchema>
