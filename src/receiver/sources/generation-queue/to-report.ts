import { requestIdSchema } from '../../../wire/schemas.ts'
import type { Parsed, UnreadableReason, Report } from '../../domain/report.ts'
import { receivedNotificationSchema, type ReceivedNotification, type ReceivedResult } from './received.ts'

/** The report of a notification (spec, Events). */
export function parse(json: unknown): Parsed {
  const parsed = receivedNotificationSchema.safeParse(json)
  if (!parsed.success) return { kind: 'unreadable', ...refusal(json) }
  return { kind: 'report', jobId: parsed.data.request_id, report: reportOfNotification(parsed.data) }
}

function refusal(json: unknown): { reason: UnreadableReason; jobId: string | undefined } {
  if (typeof json !== 'object' || json === null || Array.isArray(json))
    return { reason: 'unknown_shape', jobId: undefined }
  const { request_id, status }: { request_id?: unknown; status?: unknown } = json
  const jobId = requestIdSchema.safeParse(request_id).data
  if (jobId === undefined) return { reason: 'no_request_id', jobId }
  return { reason: status === 'OK' || status === 'ERROR' ? 'unknown_shape' : 'unknown_status', jobId }
}

/** An ERROR is complete. An OK has only the first image, so a poll that completes it is due at once. */
function reportOfNotification(notification: ReceivedNotification): Report {
  const { request_id: jobId } = notification
  if (notification.status === 'ERROR')
    return { jobId, status: 'FAILED', media: [], mediaComplete: true, cost: 0, error: notification.error }
  const { model, output, cost } = notification.payload
  return { jobId, status: 'COMPLETED', model, output: output.whole, media: output.media, mediaComplete: false, cost }
}

/** Makes the report of an answer to GET /v1/requests/{id} (spec, Endpoints: result). */
export function reportOfResult(result: ReceivedResult): Report {
  const output = result.status === 'COMPLETED' ? result.output : undefined
  return {
    jobId: result.request_id,
    status: result.status,
    model: result.model,
    output: output?.whole,
    media: output?.media ?? [],
    mediaComplete: true,
    // A cancelled request costs nothing, and its result may leave the cost out.
    cost: result.status === 'CANCELED' ? (result.cost ?? 0) : result.cost,
    error: result.status === 'FAILED' ? result.error : undefined,
    createdAt: result.created_at,
    completedAt: result.completed_at,
  }
}
