import { z } from 'zod'
import type { Hint, Parsed, Report } from '../../domain/report.ts'
import { jobIdOf } from '../ids.ts'
import { mediaOf, outputOf } from '../media.ts'

const eventSchema = z.object({ type: z.unknown().optional(), data: z.object({ id: z.unknown().optional() }) })

/**
 * A webhook names the job and a file, but not the link of a video, so it is a reason to poll. There is no event for a
 * failed video, and events of batches and interactions are not of jobs that make media.
 */
export function parse(json: unknown): Parsed | Hint {
  const { success, data: event } = eventSchema.safeParse(json)
  if (!success) return { ok: false, reason: 'unknown_shape', jobId: undefined }
  const jobId = jobIdOf(event.data.id)
  if (jobId === undefined) return { ok: false, reason: 'no_request_id', jobId }
  return event.type === 'video.generated'
    ? { ok: true, report: undefined, jobId, poll: true }
    : { ok: false, reason: 'unknown_status', jobId }
}

const errorSchema = z.object({
  code: z.number().optional().catch(undefined),
  message: z.string().optional().catch(undefined),
})
const operationSchema = z.object({
  name: z.string(),
  done: z.boolean().default(false),
  error: errorSchema.optional(),
  response: z
    .object({
      generateVideoResponse: z.object({
        generatedSamples: z.array(z.object({ video: z.object({ uri: z.unknown().optional() }) })).optional(),
        raiMediaFilteredReasons: z.array(z.string()).optional().catch(undefined),
      }),
    })
    .optional(),
})

/** Reads an operation: its end, or `running`; undefined for another shape, and for another operation. */
export function read(json: unknown, jobId: string, model: string | undefined): Report | 'running' | undefined {
  const { data } = operationSchema.safeParse(json)
  if (data?.name !== jobId) return undefined
  if (!data.done) return 'running'
  const unstated = { mediaComplete: true, cost: undefined, createdAt: undefined, completedAt: undefined }
  const failed = (code: string, message: string): Report => ({
    ...unstated,
    jobId,
    model,
    status: 'FAILED',
    output: undefined,
    media: [],
    error: { code, message },
  })
  if (data.error !== undefined) {
    const { code, message } = data.error
    return failed(String(code ?? 'error'), message ?? 'Gemini reported no cause')
  }
  if (data.response === undefined) return undefined
  const { generatedSamples = [], raiMediaFilteredReasons } = data.response.generateVideoResponse
  if (generatedSamples.length === 0)
    return failed('filtered', raiMediaFilteredReasons?.[0] ?? 'Gemini returned no video, and no reason')
  const links = generatedSamples.map(({ video }) => video.uri)
  const media = mediaOf('video', links)
  if (media === undefined) return undefined
  return { ...unstated, jobId, model, status: 'COMPLETED', output: outputOf(media), media, error: undefined }
}
