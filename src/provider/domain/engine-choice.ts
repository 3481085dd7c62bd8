/**
 * The engine of a request: fixed when the request is accepted, and kept with it.
 * No secret is part of it. A request that was never queued keeps none, nor does
 * one that an older release accepted.
 */
export type EngineChoice = {
  name: string
  /** The type of media that the model makes. */
  type: 'image' | 'video' | 'audio'
  settings: Record<string, unknown>
}

/**
 * The job that an engine on another server runs for a request, kept with the request for the worker that takes it over.
 */
export type RemoteJob = {
  /** Null until the engine has accepted the job. */
  url: string | null
  /** The engine has lost the job once, and was given it again. */
  isRepeat: boolean
}
