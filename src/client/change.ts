// In words of its own: who imports it needs none of our packages. A test holds it against what the API gives.

/** A change of a result, beside the row of `results` and the media as they were when it was read. */
export type ReadableChange = {
  /** Its place in the feed. */
  position: number
  request_id: string
  /** Of the submit, where it came through mediadock. */
  idempotency_key: string | null
  /** What the change came to. */
  status: 'COMPLETED' | 'FAILED' | 'CANCELED'
  media_complete: boolean
  changed_at: string
  /** The row of `results` as it is now; null where somebody has removed it. */
  result: ResultRow | null
  /** Its media as they are now. */
  media: ResultMedia[]
}

/** A submit that mediadock had answered 202, and that the provider then refused, or that was given up: it has no result. */
export type RefusedSubmit = {
  position: number
  request_id: null
  idempotency_key: string
  status: 'REFUSED'
  media_complete: boolean
  changed_at: string
  /** The provider's, or `submit_expired`; null where the submit was sent again since. */
  error: { code: string; message: string } | null
  /** What the service gave that submitted it. */
  metadata: unknown
  result: null
  media: ResultMedia[]
}

/** In the place of a change that cannot be written out: nothing stops the feed. */
export type UnreadableChange = {
  position: number
  request_id: string | null
  error: { code: 'unreadable'; message: string }
}

/** What the feed consists of; `status` tells one from the other, and an unreadable change has none. */
export type ResultChange = ReadableChange | RefusedSubmit | UnreadableChange

export type ResultRow = {
  request_id: string
  status: 'IN_QUEUE' | 'IN_PROGRESS' | 'COMPLETED' | 'FAILED' | 'CANCELED'
  model: string | null
  /** In the shape of the provider's result endpoint; null where there is none. */
  output: unknown
  /** False while only what the webhook carried is known. */
  media_complete: boolean
  cost: number | null
  error_code: string | null
  error_message: string | null
  created_at: string
  completed_at: string | null
  /** When it became terminal here; null until then. */
  landed_at: string | null
  source: 'webhook' | 'reconciler' | null
  key_name: string | null
  sandbox: boolean | null
  /** What the service gave that tracked it. */
  metadata: unknown
  idempotency_key: string | null
  /** 0 to 100, as the last poll saw it; null before the first. */
  progress: number | null
  /** The place in the provider's queue, while it is known. */
  queue_position: number | null
}

export type ResultMedia = {
  kind: 'image' | 'video' | 'audio'
  position: number
  url: string
  original_url: string | null
  width: number | null
  height: number | null
  duration_seconds: number | null
  /** Where its copy is, and what that is; null while there is none. */
  archived_url: string | null
  bytes: number | null
  content_type: string | null
  sha256: string | null
  archived_at: string | null
  /** Why there is no copy and will be none. */
  archive_error: string | null
}

export type ChangePage = { data: ResultChange[]; next_after: number; head: number }

/** Where changes are read from. Rejects with ReadError where it makes no sense to try again. */
export type ChangeSource = (after: number, signal: AbortSignal) => Promise<ChangePage>

/** Reading on is refused: the position is none, or too old, or the caller may not read. */
export class ReadError extends Error {
  override name = 'ReadError'
  code: string
  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options)
    this.code = code
  }
}
