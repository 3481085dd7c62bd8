import type { Change } from '../../landing/replay.ts'
import type { DeliveryDetail } from '../../queries/delivery-detail.ts'
import type { QuarantinedEntry } from '../../queries/quarantine.ts'
import type { CallExamples } from './call-examples.ts'
import * as story from './story.ts'

const { arrival, body, delivery, keyName, landedAt, media, refused, requestId, result, signedSeconds, webhookId } =
  story

const headersOf = (id: string, bytes: number, seconds: number) => ({
  host: 'hooks.example.com',
  'content-type': 'application/json',
  'content-length': String(bytes),
  'x-service-timestamp': String(seconds),
  'x-service-webhook-id': id,
})

const detail = {
  ...delivery,
  headers: headersOf(webhookId, delivery.bytes, signedSeconds),
  body_base64: Buffer.from(body).toString('base64'),
  body_text: body,
  body_sha256: story.bodySha256,
  verification: { key_name: keyName, t: signedSeconds, skew_seconds: 0, window_seconds: 300 },
  attempts: [{ attempted_at: landedAt, outcome: 'landed', detail: null }],
  failures: 0,
  claims: 0,
  trouble: null,
  due_at: null,
  arrival_log: [arrival],
} satisfies DeliveryDetail

const refusedBody = JSON.stringify({
  request_id: refused.requestId,
  status: 'ERROR',
  error: { code: 'GENERATION_FAILED', message: 'the model gave up' },
})
const quarantined = {
  id: 1,
  arrived_at: refused.at,
  reason: refused.reason,
  webhook_id: refused.webhookId,
  headers: headersOf(refused.webhookId, refusedBody.length, signedSeconds + 146),
  bytes: refusedBody.length,
  body_preview: refusedBody,
} satisfies QuarantinedEntry

/** The rows that a replay writes after the request was removed, in Postgres's JSON. */
const { kind, position, url, original_url, width, height, duration_seconds } = media
const { metadata: _lost, ...kept } = result
const written = {
  ...kept,
  created_at: '2026-01-31T03:00:00+00:00',
  completed_at: '2026-01-31T03:00:04+00:00',
  landed_at: '2026-01-31T03:10:00.047+00:00',
}
const change = {
  request_id: requestId,
  outcome: 'landed',
  request: { before: null, after: written },
  media: { written: [{ kind, position, url, original_url, width, height, duration_seconds }], removed: [] },
} satisfies Change

export const deliveries: Record<string, CallExamples> = {
  listDeliveries: { 200: { data: [delivery], next_cursor: null } },
  showDelivery: { 200: detail },
  replayDelivery: { body: { dry_run: true }, 200: { replayed: 1, changes: [change] } },
  replayDeliveries: {
    body: { filter: { state: 'processed', key_name: keyName, since: story.at('03:00:00') }, dry_run: true },
    200: { count: 1, replayed: 1, changes: [change], failed: [], next_cursor: null },
  },
  listArrivals: { 200: { data: [arrival], next_cursor: null } },
  listQuarantine: { 200: { data: [quarantined], next_cursor: null } },
  verifyQuarantine: { 200: { checked: 1, accepted: 1, refused: 0 } },
}
