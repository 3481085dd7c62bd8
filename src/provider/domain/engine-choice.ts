/**
 * The engine of a request. It is fixed when the request is accepted, and stored with it without secrets. Requests that
 * were never queued have none, nor do requests accepted by an older release.
 */
export type EngineChoice = {
  name: string
  /** The type of media that the model makes. */
  type: 'image' | 'video' | 'audio'
  settings: Record<string, unknown>
}

/** A request's job on a remote engine. Stored with the request, so that another worker can take it over. */
export type RemoteJob = {
  /** Null until the engine has accepted the job. */
  url: string | null
  /** True after the engine lost the job once and received it again. */
  isRepeat: boolean
}
