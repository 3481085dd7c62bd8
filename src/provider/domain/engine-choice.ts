import { z } from 'zod'

/**
 * The engine of a request. It is fixed when the request is accepted, and stored with it without secrets. Requests that
 * were never queued have none, nor do requests accepted by an older release.
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
  /** True after the engine lost the job once and received it again. */
  isRepeat: z.boolean(),
})
export type RemoteJob = z.infer<typeof remoteJobSchema>
