import { z } from 'zod'
import type { Hint, Parsed } from '../../domain/report.ts'
import type { Read } from '../answers.ts'
import { jobIdOf } from '../ids.ts'
import { mediaOf, outputOf } from '../media.ts'

const text = z.string().optional().catch(undefined)
const links = z.array(z.unknown()).optional().catch(undefined)
const jobSchema = z.object({
  id: z.unknown().optional(),
  status: z.unknown().optional(),
  model: text,
  error: text,
  urls: links,
  unsigned_urls: links,
  usage: z
    .object({ cost: z.number().nonnegative().optional().catch(undefined) })
    .optional()
    .catch(undefined),
})

/** Reads the answer to a poll. `urls` are signed; the links in `unsigned_urls` need the key. */
export function read(json: unknown): Read {
  const { success, data } = jobSchema.safeParse(json)
  if (!success) return { ok: false, reason: 'unknown_shape', jobId: undefined }
  const jobId = jobIdOf(data.id)
  if (jobId === undefined) return { ok: false, reason: 'no_request_id', jobId }
  const { model, usage, urls = [], unsigned_urls = [], error } = data
  const untimed = { createdAt: undefined, completedAt: undefined }
  // In US dollars.
  const stated = { ...untimed, jobId, model, mediaComplete: true, cost: usage?.cost }
  const nothing = { output: undefined, media: [] }
  switch (data.status) {
    case 'pending':
      return { ok: true, report: undefined, jobId, status: 'IN_QUEUE' }
    case 'in_progress':
      return { ok: true, report: undefined, jobId, status: 'IN_PROGRESS' }
    case 'completed': {
      const media = mediaOf('video', urls.length > 0 ? urls : unsigned_urls)
      if (media === undefined || media.length === 0) return { ok: false, reason: 'unknown_shape', jobId }
      return { ok: true, report: { ...stated, status: 'COMPLETED', output: outputOf(media), media, error: undefined } }
    }
    case 'failed':
    case 'expired': {
      const message = error ?? `OpenRouter reported the status ${data.status} without a cause`
      return { ok: true, report: { ...stated, ...nothing, status: 'FAILED', error: { code: data.status, message } } }
    }
    case 'cancelled':
      return { ok: true, report: { ...stated, ...nothing, status: 'CANCELED', error: undefined } }
    default:
      return { ok: false, reason: 'unknown_status', jobId }
  }
}

const ends: ReadonlyMap<unknown, string> = new Map(
  ['completed', 'failed', 'cancelled', 'expired'].map((status) => [`video.generation.${status}`, status]),
)
const eventSchema = z.object({ type: z.unknown().optional(), data: z.looseObject({}) })

/**
 * The report of a webhook. The end is in `type`. The links of a completed job need the key, so the job is polled for
 * signed ones.
 */
export function parse(json: unknown): Parsed | Hint {
  const { success, data: event } = eventSchema.safeParse(json)
  if (!success) return { ok: false, reason: 'unknown_shape', jobId: undefined }
  const jobId = jobIdOf(event.data['id'])
  const status = ends.get(event.type)
  if (jobId !== undefined && status === 'completed') return { ok: true, report: undefined, jobId, poll: true }
  const answer = read({ ...event.data, status })
  return answer.ok && answer.report === undefined ? { ok: false, reason: 'unknown_status', jobId } : answer
}
