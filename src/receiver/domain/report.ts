import type { RequestStatus } from '../../wire/schemas.ts'

/** One output item; positions count from 0 within a kind. */
export type MediaItem = {
  kind: 'image' | 'video' | 'audio'
  position: number
  url: string
  original_url?: string | undefined
  width?: number | undefined
  height?: number | undefined
  duration_seconds?: number | undefined
}

export type InlineFile = { sha256: string; uri: string }

/** The end of a job as its source reports it, by a webhook or by the full result. */
export type Report = {
  /** The source's own id of the job. */
  jobId: string
  status: 'COMPLETED' | 'FAILED' | 'CANCELED'
  model?: string | undefined
  output?: unknown
  media: readonly MediaItem[]
  /** True where the media came as base64. Their links lead to their places in the archive. */
  isInline?: boolean
  /** These media, each as a `data:` URI. A delivery that waits to be stored omits them: its body contains them. */
  files?: readonly InlineFile[]
  /** False where the full result carries more: a poll completes it. */
  mediaComplete: boolean
  cost?: number | undefined
  error?: { code: string; message: string } | undefined
  /** The source's times, in ISO 8601. */
  createdAt?: string | undefined
  completedAt?: string | undefined
}

/**
 * Returns the output that consists of this item alone, in the shape of the default source (spec, Output shapes). The
 * view `results` makes it from `media` in the same way (`outputOfRow` of results-schema.ts), so such an output is not
 * stored.
 */
export function outputOfItem({ kind, position: _position, duration_seconds: duration, ...rest }: MediaItem): object {
  const item = Object.fromEntries(Object.entries({ ...rest, duration }).filter(([, value]) => value !== undefined))
  return kind === 'image' ? { images: [item] } : { [kind]: item }
}

/** A job that has not ended: `progress` from 0 to 100, and the place in the source's queue from 0. */
export type RunningStatus = { status: RequestStatus; progress: number; queue_position: number | null }

/** The reasons for parking a delivery that cannot be parsed. It is kept raw for RETENTION_DAYS. */
export const unreadableReasons = [
  'not_utf8',
  'not_json',
  'not_storable',
  'unknown_shape',
  'inline_media',
  'no_request_id',
  'unknown_status',
  'unknown_source',
] as const
export type UnreadableReason = (typeof unreadableReasons)[number]

/** All reasons for parking, as `deliveries.parked_reason` holds them. */
export type ParkReason = UnreadableReason | 'key_mismatch' | 'source_mismatch' | 'landing_failed'

/**
 * A body that names a job without reporting its end. With `poll` the job may have ended, so its next poll is due now.
 * `status`: the state of a running job.
 */
export type Hint = { kind: 'hint'; jobId: string; poll: boolean; status?: 'IN_QUEUE' | 'IN_PROGRESS' }

/** A parsed body: it reports the end of a job, is a hint, or cannot be used. */
export type Parsed =
  | { kind: 'report'; jobId: string; report: Report }
  | Hint
  | { kind: 'unreadable'; jobId: string | undefined; reason: UnreadableReason }
