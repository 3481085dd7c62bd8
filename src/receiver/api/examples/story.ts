import { deliveryId, sha256Hex } from '../../domain/delivery.ts'
import type { ArrivalEntry } from '../../queries/arrivals.ts'
import type { DeliveryEntry } from '../../queries/deliveries.ts'
import type { Media } from '../../queries/request-detail.ts'
import type { Request } from '../../queries/requests.ts'
import type { ResultRow } from '../../queries/results.ts'

/**
 * The story of all examples: one generation, a sunrise that takes four seconds, from its submit to its result. Two
 * minutes later another generation's webhook is refused, because its secret is not known here.
 */

/** Returns a time of that night, in the format of answers. */
export const at = (time: string) => `2026-01-31T${time}Z`

export const requestId = '2f0d6c1e-8f5b-4c3a-9d2e-000000000001'
export const idempotencyKey = '7d9f3c52-4b1e-4a86-9c03-5e2f8b6a1d47'
export const webhookId = 'b3a0c7d4-61fe-4f0b-8a55-2d9c13e7f680'
export const model = 'aurora-image'
export const keyName = 'live'
export const metadata = { order: 1 }
export const input = { prompt: 'a sunrise over snow', aspect_ratio: '16:9' }
const url = 'https://media.example.com/sunrise.png'
const cost = 4

export const submittedAt = at('02:59:59.912')
export const createdAt = at('03:00:00.000')
export const trackedAt = at('03:00:00.064')
export const completedAt = at('03:00:04.000')
export const receivedAt = at('03:00:04.112')
export const polledAt = at('03:00:04.171')
export const landedAt = at('03:00:04.178')
/** The position of its change in the feed, and of the change before. */
export const position = 1_769_828_404_199_312
export const positionBefore = 1_769_825_560_120_841

export const body = JSON.stringify({
  request_id: requestId,
  status: 'OK',
  payload: { model, output: { images: [{ url }] }, cost },
})
const id = deliveryId(webhookId, Buffer.from(body))
export const bodySha256 = sha256Hex(body)
const bytes = body.length
/** The signed time, in Unix seconds. */
export const signedSeconds = 1_769_828_404

export const output = { images: [{ url, width: 1344, height: 756 }] }

export const media = {
  kind: 'image',
  position: 0,
  url,
  original_url: null,
  width: 1344,
  height: 756,
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
  cost,
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
  media_complete: true,
  first_media: { kind: 'image', url, sha256: null },
  progress: 100,
  queue_position: null,
  cost,
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

export const delivery = {
  id,
  webhook_id: webhookId,
  request_id: requestId,
  status: 'OK',
  state: 'processed',
  outcome: 'landed',
  reason: null,
  flags: [],
  model,
  key_name: keyName,
  source_name: sourceName,
  signed_at: completedAt,
  received_at: receivedAt,
  skew_seconds: 0,
  bytes,
  arrivals: 1,
  ack_ms: 4.2,
} satisfies DeliveryEntry

export const arrival = {
  id: 1,
  arrived_at: receivedAt,
  outcome: 'accepted',
  reason: null,
  status: 200,
  webhook_id: webhookId,
  delivery_id: id,
  request_id: requestId,
  key_name: keyName,
  source_name: sourceName,
  remote: '203.0.113.7',
  bytes,
  skew_seconds: 0,
  ack_ms: 4.2,
  folded: 0,
} satisfies ArrivalEntry

/** The refused webhook. */
export const refused = {
  webhookId: '5c81e2f9-07ab-4d3e-b6c4-9f1e8d2a7b30',
  requestId: '2f0d6c1e-8f5b-4c3a-9d2e-000000000002',
  at: at('03:02:30.507'),
  reason: 'no_matching_secret',
}
