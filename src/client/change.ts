// These types repeat the API's own, so that a program can import them without our packages. A test compares both.

/** A change of a result, with its row of `results` and its media as they were when they were read. */
export type ReadableChange = {
  /** The position in the feed. */
  position: number
  request_id: string
  /** The Idempotency-Key of the submit, if it came through mediadock. */
  idempotency_key: string | null
  /** The status after the change. */
  status: 'COMPLETED' | 'FAILED' | 'CANCELED'
  media_complete: boolean
  changed_at: string
  /** The current row of `results`. Null if the row was removed. */
  result: ResultRow | null
  /** The current media. */
  media: ResultMedia[]
}

/** A submit that mediadock answered with 202, and that the provider then refused or that expired. It has no result. */
export type RefusedSubmit = {
  position: number
  request_id: null
  idempotency_key: string
  status: 'REFUSED'
  media_complete: boolean
  changed_at: string
  /** The provider's error, or `submit_expired`. Null if the submit was sent again since. */
  error: { code: string; message: string } | null
  /** The metadata that the submitter gave. */
  metadata: unknown
  result: null
  media: ResultMedia[]
}

/** Stands in place of a change that cannot be serialised, so that it does not stop the feed. */
export type UnreadableChange = {
  position: number
  request_id: string | null
  error: { code: 'unreadable'; message: string }
}

/** An item of the feed: a change, a refused submit (`status` REFUSED), or an unreadable change (no status). */
export type ResultChange = ReadableChange | RefusedSubmit | UnreadableChange

export type ResultRow = {
  request_id: string
  status: 'IN_QUEUE' | 'IN_PROGRESS' | 'COMPLETED' | 'FAILED' | 'CANCELED'
  model: string | null
  /** The output in the shape of the provider's result endpoint. Null without an output. */
  output: unknown
  /** False while only the webhook's part of the result is known. */
  media_complete: boolean
  cost: number | null
  error_code: string | null
  error_message: string | null
  created_at: string
  completed_at: string | null
  /** When the request became terminal here. Null until then. */
  landed_at: string | null
  source: 'webhook' | 'reconciler' | null
  key_name: string | null
  sandbox: boolean | null
  /** The metadata that the tracking service gave. */
  metadata: unknown
  idempotency_key: string | null
  /** 0 to 100: the highest that a poll has seen. Null until a poll finds the request running. */
  progress: number | null
  /** The place in the provider's queue, if it is known. */
  queue_position: number | null
  /** The source that the request belongs to: a name in SOURCES_FILE, or `generation-queue`. */
  source_name: string
  /** The source's own id of the request. */
  external_id: string
}

export type ResultMedia = {
  kind: 'image' | 'video' | 'audio'
  position: number
  url: string
  original_url: string | null
  width: number | null
  height: number | null
  duration_seconds: number | null
  /** The address of the archived copy. Null while there is none. */
  archived_url: string | null
  bytes: number | null
  content_type: string | null
  sha256: string | null
  archived_at: string | null
  /** Why there is no archived copy and will not be one. */
  archive_error: string | null
}

export type ChangePage = { data: ResultChange[]; next_after: number; head: number }

/** Reads a page of changes after a position. Rejects with ReadError if a retry cannot succeed. */
export type ReadPage = (after: number, signal: AbortSignal) => Promise<ChangePage>

/** Reading is refused: the position is invalid or expired, or the caller may not read. */
export class ReadError extends Error {
  override name = 'ReadError'
  code: string
  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options)
    this.code = code
  }
}
