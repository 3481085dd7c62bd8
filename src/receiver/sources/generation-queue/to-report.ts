import type { MediaItem, Parsed, UnreadableReason, Report } from '../../domain/report.ts'
import {
  receivedNotificationSchema,
  type ReceivedItem,
  type ReceivedNotification,
  type ReceivedResult,
} from './received.ts'

/** The report of a notification (spec, Events). */
export function parse(json: unknown): Parsed {
  const parsed = receivedNotificationSchema.safeParse(json)
  if (!parsed.success) return { kind: 'unreadable', ...refusal(json) }
  return { kind: 'report', jobId: parsed.data.request_id, report: reportOfNotification(parsed.data) }
}

const guidPattern = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

function refusal(json: unknown): { reason: UnreadableReason; jobId: string | undefined } {
  if (typeof json !== 'object' || json === null || Array.isArray(json))
    return { reason: 'unknown_shape', jobId: undefined }
  const stated = 'request_id' in json ? json.request_id : undefined
  if (typeof stated !== 'string' || !guidPattern.test(stated)) return { reason: 'no_request_id', jobId: undefined }
  const status = 'status' in json ? json.status : undefined
  return {
    reason: status === 'OK' || status === 'ERROR' ? 'unknown_shape' : 'unknown_status',
    jobId: stated.toLowerCase(),
  }
}

/** An ERROR is complete. An OK has only the first image, so a poll that completes it is due at once. */
function reportOfNotification(notification: ReceivedNotification): Report {
  const { request_id: jobId } = notification
  if (notification.status === 'ERROR')
    return { jobId, status: 'FAILED', media: [], mediaComplete: true, cost: 0, error: notification.error }
  const { model, output, cost } = notification.payload
  return { jobId, status: 'COMPLETED', model, output: output.whole, media: mediaOf(output), mediaComplete: false, cost }
}

/** Makes the report of an answer to GET /v1/requests/{id} (spec, Endpoints: result). */
export function reportOfResult(result: ReceivedResult): Report {
  const output = result.status === 'COMPLETED' ? result.output : undefined
  return {
    jobId: result.request_id,
    status: result.status,
    model: result.model,
    output: output?.whole,
    media: output === undefined ? [] : mediaOf(output),
    mediaComplete: true,
    // A cancelled request costs nothing, and its result may leave the cost out.
    cost: result.status === 'CANCELED' ? (result.cost ?? 0) : result.cost,
    error: result.status === 'FAILED' ? result.error : undefined,
    createdAt: result.created_at,
    completedAt: result.completed_at,
  }
}

function mediaOf({ kind, items }: { kind: MediaItem['kind']; items: readonly ReceivedItem[] }): MediaItem[] {
  return items.map(({ url, original_url, width, height, duration }, position) => ({
    kind,
    position,
    url,
    original_url,
    width,
    height,
    duration_seconds: secondsOf(duration),
  }))
}

/** Reads seconds from a number or its text. Returns undefined for other values. */
function secondsOf(duration: unknown): number | undefined {
  const seconds = typeof duration === 'string' && duration !== '' ? Number(duration) : duration
  return typeof seconds === 'number' && Number.isFinite(seconds) && seconds >= 0 ? seconds : undefined
}
