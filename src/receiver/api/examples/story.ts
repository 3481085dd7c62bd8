import type { Media } from '../../queries/request-detail.ts'
import type { Request } from '../../queries/requests.ts'
import type { ResultRow } from '../../queries/results.ts'

/** The values of all examples: one generation, which takes four seconds, from its submit to its result. */

/** Returns a time of that night, in the format of answers. */
export const at = (time: string) => `2026-01-31T${time}Z`

export const requestId = '2f0d6c1e-8f5b-4c3a-9d2e-000000000001'
export const idempotencyKey = '7d9f3c52-4b1e-4a86-9c03-5e2f8b6a1d47'
export const model = 'aurora-image'
export const keyName = 'live'
export const metadata = { order: 1 }
export const input = { prompt: 'a sunrise over snow', aspect_ratio: '16:9' }
const url = 'https://media.example.com/sunrise.png'

export const submittedAt = at('02:59:59.912')
const createdAt = at('03:00:00.000')
const trackedAt = at('03:00:00.064')
const completedAt = at('03:00:04.000')
const receivedAt = at('03:00:04.112')
export const landedAt = at('03:00:04.178')
/** The position of its change in the feed, and of the change before. */
export const position = 1_769_828_404_199_312
export const positionBefore = 1_769_825_560_120_841

const output = { images: [{ url, width: 1280, height: 720 }] }

export const media = {
  kind: 'image',
  position: 0,
  url,
  original_url: null,
  width: 1280,
  height: 720,
  duration_seconds: null,
  archived_url: null,
  content_type: null,
  sha256: null,
  archive_error: null,
  bytes: null,
  archived_at: null,
} satisfies Media

const sourceName = 'generation-queue'

export const result = {
  request_id: requestId,
  status: 'COMPLETED',
  model,
  output,
  media_complete: true,
  cost: 4,
  error_code: null,
  error_message: null,
  created_at: createdAt,
  completed_at: completedAt,
  landed_at: landedAt,
  source: 'webhook',
  key_name: keyName,
  sandbox: false,
  metadata,
  idempotency_key: idempotencyKey,
  progress: 100,
  queue_position: null,
  source_name: sourceName,
  external_id: requestId,
} satisfies ResultRow

/** The request once it has landed. */
export const request = {
  id: requestId,
  request_id: requestId,
  source_name: sourceName,
  external_id: requestId,
  status: 'COMPLETED',
  overdue: false,
  model,
  key_name: keyName,
  sandbox: false,
  metadata,
  media_items: 1,
  media_gone: 0,
  media_complete: true,
  first_media: { kind: 'image', url, sha256: null },
  progress: 100,
  queue_position: null,
  cost: 4,
  error_code: null,
  error_message: null,
  source: 'webhook',
  tracked_at: trackedAt,
  created_at: createdAt,
  completed_at: completedAt,
  landed_at: landedAt,
  webhook_at: receivedAt,
  contradiction: false,
  confirmed_at: landedAt,
  polls: 0,
  next_poll_at: null,
  polled_at: landedAt,
  poll_outcome: 'result',
  poll_detail: null,
} satisfies Request
