import { z } from 'zod'
import type { FilesPlace } from '../../../platform/settings.ts'
import type { Hint, Parsed } from '../../domain/report.ts'
import { webhookOf, type Read } from '../answers.ts'
import { jobIdOf } from '../ids.ts'
import { mediaIn } from '../media.ts'

const text = z.string().optional().catch(undefined)
const predictionSchema = z.object({
  id: z.unknown().optional(),
  status: z.unknown().optional(),
  model: text,
  output: z.unknown().optional(),
  error: z.unknown().optional(),
  created_at: text,
  completed_at: text,
})

/** Reads a prediction, which webhooks and polls carry alike. It names no event and no cost. */
export function read(json: unknown, archive?: FilesPlace): Read {
  const { success, data } = predictionSchema.safeParse(json)
  if (!success) return { ok: false, reason: 'unknown_shape', jobId: undefined }
  const jobId = jobIdOf(data.id)
  if (jobId === undefined) return { ok: false, reason: 'no_request_id', jobId }
  const { model, created_at: createdAt, completed_at: completedAt } = data
  const stated = { jobId, model, mediaComplete: true, cost: undefined, createdAt, completedAt }
  const nothing = { output: undefined, media: [] }
  switch (data.status) {
    case 'starting':
      return { ok: true, report: undefined, jobId, status: 'IN_QUEUE' }
    case 'processing':
      return { ok: true, report: undefined, jobId, status: 'IN_PROGRESS' }
    case 'succeeded': {
      const found = mediaIn(data.output, archive)
      // Replicate removes an output after an hour, so a later poll finds no media.
      if (typeof found === 'string') return { ok: false, reason: found, jobId }
      return { ok: true, report: { ...stated, status: 'COMPLETED', ...found, error: undefined } }
    }
    case 'failed': {
      const message = typeof data.error === 'string' && data.error !== '' ? data.error : 'Replicate reported no cause'
      return { ok: true, report: { ...stated, ...nothing, status: 'FAILED', error: { code: 'failed', message } } }
    }
    case 'canceled':
    // Its deadline passed before it started.
    case 'aborted':
      return { ok: true, report: { ...stated, ...nothing, status: 'CANCELED', error: undefined } }
    default:
      return { ok: false, reason: 'unknown_status', jobId }
  }
}

/** The report of a webhook. A prediction that runs is no reason to poll: its end brings another webhook. */
export function parse(json: unknown, archive?: FilesPlace): Parsed | Hint {
  return webhookOf(read(json, archive))
}
