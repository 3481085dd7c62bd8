import { z } from 'zod'
import type { FilesPlace } from '../../../platform/settings.ts'
import type { Hint, Parsed, UnreadableReason, Report } from '../../domain/report.ts'
import type { Job } from '../../domain/source.ts'
import { jobIdOf } from '../ids.ts'
import { mediaIn } from '../media.ts'

const notificationSchema = z.object({
  request_id: z.unknown().optional(),
  status: z.unknown().optional(),
  payload: z.unknown().optional(),
  error: z.unknown().optional(),
})

/** The report of a webhook. An output that the webhook does not carry is fetched. */
export function parse(json: unknown, archive?: FilesPlace): Parsed | Hint {
  const { success, data } = notificationSchema.safeParse(json)
  if (!success) return { ok: false, reason: 'unknown_shape', jobId: undefined }
  const jobId = jobIdOf(data.request_id)
  if (jobId === undefined) return { ok: false, reason: 'no_request_id', jobId }
  switch (data.status) {
    case 'ERROR':
      return { ok: true, report: reportOfFailure(jobId, undefined, data) }
    case 'OK': {
      // `payload_error`: fal could not write the output into the webhook.
      if (data.payload === null || data.payload === undefined) return { ok: true, report: undefined, jobId, poll: true }
      const report = reportOfOutput({ jobId, model: undefined }, data.payload, archive)
      return typeof report === 'string' ? { ok: false, reason: report, jobId } : { ok: true, report }
    }
    default:
      return { ok: false, reason: 'unknown_status', jobId }
  }
}

/** fal states no cost and no times. */
const unstated = { mediaComplete: true, cost: undefined, createdAt: undefined, completedAt: undefined } as const

/** The report of the output of a model; the reason for parking an output without media. */
export function reportOfOutput(job: Job, payload: unknown, archive: FilesPlace | undefined): Report | UnreadableReason {
  const found = mediaIn(payload, archive)
  if (typeof found === 'string') return found
  return { ...unstated, ...job, status: 'COMPLETED', ...found, error: undefined }
}

const failureSchema = z.object({ error_type: z.string().optional().catch(undefined), detail: z.unknown().optional() })
const detailSchema = z.object({
  type: z.string().optional().catch(undefined),
  msg: z.string().optional().catch(undefined),
})
type Failure = { error?: unknown; payload?: unknown }

/** The report of a failure: `error_type` with a text in `detail`, or the first of the validation errors in `detail`. */
export function reportOfFailure(jobId: string, model: string | undefined, { error, payload }: Failure): Report {
  const { error_type, detail } = failureSchema.safeParse(payload).data ?? {}
  const [first] = Array.isArray(detail) ? detail : []
  const { type, msg } = detailSchema.safeParse(first).data ?? {}
  const message = [detail, msg, error].find((text): text is string => typeof text === 'string' && text !== '')
  const ended = { ...unstated, jobId, model, output: undefined, media: [] }
  if (error_type === 'client_cancelled') return { ...ended, status: 'CANCELED', error: undefined }
  const stated = { code: error_type ?? type ?? 'error', message: message ?? 'fal reported no cause' }
  return { ...ended, status: 'FAILED', error: stated }
}
