import { z } from 'zod'
import { sha256Hex } from '../domain/delivery.ts'
import type { SourceKind } from '../domain/source.ts'
import { fetchJob, readJob, submitMembers } from './answers.ts'
import { mediaOf, outputOf } from './media.ts'

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
function read(json: unknown) {
  return readJob(json, generationSchema, ({ state, assets, ...generation }) => {
    const stated = { model: generation.model ?? undefined, createdAt: generation.created_at ?? undefined }
    switch (state) {
      case 'queued':
        return 'IN_QUEUE'
      case 'dreaming':
        return 'IN_PROGRESS'
      case 'completed': {
        const media = [...(mediaOf('image', [assets?.image]) ?? []), ...(mediaOf('video', [assets?.video]) ?? [])]
        if (media.length === 0) return 'unknown_shape'
        return { ...stated, status: 'COMPLETED', output: outputOf(media), media }
      }
      case 'failed': {
        const message = generation.failure_reason ?? 'Luma reported no cause'
        return { ...stated, status: 'FAILED', error: { code: 'failed', message } }
      }
      default:
        return 'unknown_status'
    }
  })
}

/** The Dream Machine of Luma, whose webhooks are not signed. */
export const luma: SourceKind = {
  /** Luma sends no id, so a repeated delivery is known by its bytes. */
  identify: ({ body }) =>
    body === undefined
      ? { ok: false, stated: undefined, message: 'the id is the hash of the body' }
      : { ok: true, webhookId: `sha256-${sha256Hex(body)}` },
  /** Accepts every body, since Luma documents no signature: `parse` returns hints only. */
  // oxlint-disable-next-line require-yield -- every kind verifies in steps, and this one has none
  *verify(_arrived, [first], nowSeconds) {
    return first === undefined
      ? { ok: false, cause: 'no_matching_secret', timestampSeconds: undefined }
      : { ok: true, keyName: first.name, timestampSeconds: nowSeconds }
  },
  /** The body is never a result: it is a reason to poll the job that it names. */
  parse: (json) => {
    const answer = read(json)
    const { kind, jobId } = answer
    if (jobId === undefined) return { kind: 'unreadable', reason: 'no_request_id', jobId }
    if (kind === 'unreadable' && answer.reason === 'unknown_status') return answer
    return { kind: 'hint', jobId, poll: kind !== 'hint' }
  },
  fetchResult: async ({ jobId }, api) =>
    fetchJob({ path: `/generations/${encodeURIComponent(jobId)}`, jobId, read }, api),
  /** The models of pictures are called photon; all others make videos. */
  submit: async (submission, api) =>
    submitMembers(`/generations/${submission.model.startsWith('photon') ? 'image' : 'video'}`, submission, api),
  signatureHeaders: [],
  signed: false,
  apiUrl: 'https://api.lumalabs.ai/dream-machine/v1',
}
