import { z } from 'zod'
import type { Hint, Parsed } from '../../domain/report.ts'
import type { Read } from '../answers.ts'
import { jobIdOf } from '../ids.ts'
import { mediaOf, outputOf } from '../media.ts'

const text = z.string().nullish().catch(undefined)
const generationSchema = z.object({
  id: z.unknown().optional(),
  state: z.unknown().optional(),
  model: text,
  failure_reason: text,
  created_at: text,
  assets: z.object({ video: text, image: text }).nullish().catch(undefined),
})

/** Reads a generation. `progress_video` is no result. */
export function read(json: unknown): Read {
  const { success, data } = generationSchema.safeParse(json)
  if (!success) return { ok: false, reason: 'unknown_shape', jobId: undefined }
  const jobId = jobIdOf(data.id)
  if (jobId === undefined) return { ok: false, reason: 'no_request_id', jobId }
  const [model, createdAt] = [data.model ?? undefined, data.created_at ?? undefined]
  const stated = { jobId, model, mediaComplete: true, cost: undefined, createdAt, completedAt: undefined }
  switch (data.state) {
    case 'queued':
      return { ok: true, report: undefined, jobId, status: 'IN_QUEUE' }
    case 'dreaming':
      return { ok: true, report: undefined, jobId, status: 'IN_PROGRESS' }
    case 'completed': {
      const { video, image } = data.assets ?? {}
      const media = [...(mediaOf('image', [image]) ?? []), ...(mediaOf('video', [video]) ?? [])]
      if (media.length === 0) return { ok: false, reason: 'unknown_shape', jobId }
      return { ok: true, report: { ...stated, status: 'COMPLETED', output: outputOf(media), media, error: undefined } }
    }
    case 'failed': {
      const error = { code: 'failed', message: data.failure_reason ?? 'Luma reported no cause' }
      return { ok: true, report: { ...stated, status: 'FAILED', output: undefined, media: [], error } }
    }
    default:
      return { ok: false, reason: 'unknown_status', jobId }
  }
}

/** Luma signs no webhook, so its body is never a result: it is a reason to poll the job that it names. */
export function parse(json: unknown): Parsed | Hint {
  const answer = read(json)
  const jobId = answer.ok && answer.report !== undefined ? answer.report.jobId : answer.jobId
  if (jobId === undefined) return { ok: false, reason: 'no_request_id', jobId }
  if (!answer.ok && answer.reason === 'unknown_status') return answer
  return { ok: true, report: undefined, jobId, poll: !answer.ok || answer.report !== undefined }
}
