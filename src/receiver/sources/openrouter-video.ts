import { z } from 'zod'
import { verifyInSteps } from '../../wire/signature.ts'
import type { SourceKind } from '../domain/source.ts'
import { fetchJob, keyHeader, readJob, submitMembers, text, type State } from './answers.ts'
import { mediaOf, outputOf } from './media.ts'
import { idIn, readHeaders, textSecrets } from './signatures.ts'

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

/** The state of a job. `urls` are signed; the links in `unsigned_urls` need the key. */
function stateOf({ status, model, error, usage, urls = [], unsigned_urls = [] }: z.infer<typeof jobSchema>): State {
  // In US dollars.
  const stated = { model, cost: usage?.cost }
  switch (status) {
    case 'pending':
      return 'IN_QUEUE'
    case 'in_progress':
      return 'IN_PROGRESS'
    case 'completed': {
      const media = mediaOf('video', urls.length > 0 ? urls : unsigned_urls)
      if (media === undefined || media.length === 0) return 'unknown_shape'
      return { ...stated, status: 'COMPLETED', output: outputOf(media), media }
    }
    case 'failed':
    case 'expired': {
      const message = error ?? `OpenRouter reported the status ${status} without a cause`
      return { ...stated, status: 'FAILED', error: { code: status, message } }
    }
    case 'cancelled':
      return { ...stated, status: 'CANCELED' }
    default:
      return 'unknown_status'
  }
}

/** The end of a job is in the type of its event. */
const eventSchema = z.object({ type: text, data: z.looseObject({}) }).transform(({ type = '', data }) => {
  const [, status] = /^video\.generation\.(completed|failed|cancelled|expired)$/.exec(type) ?? []
  return jobSchema.parse({ ...data, status })
})

export const openrouterVideo: SourceKind = {
  identify: idIn('X-OpenRouter-Idempotency-Key'),
  /** The header has the form of the default source. The signed bytes are the timestamp, a comma and the body. */
  *verify({ header, body }, secrets, nowSeconds) {
    const sent = readHeaders(header, { 'x-openrouter-signature': /^/ })
    return Array.isArray(sent) ? yield* verifyInSteps(body, sent.join(), secrets, nowSeconds, ',') : sent
  },
  /** The links of a completed job need the key, so the job is polled for signed ones. */
  parse: (json) => readJob(json, eventSchema, (job) => (job.status === 'completed' ? 'ENDED' : stateOf(job))),
  fetchResult: async ({ jobId }, api) =>
    fetchJob(
      { path: `/videos/${encodeURIComponent(jobId)}`, jobId, read: (json) => readJob(json, jobSchema, stateOf) },
      api,
    ),
  submit: async (submission, api) => submitMembers('/videos', submission, api),
  signatureHeaders: ['x-openrouter-signature'],
  signed: true,
  secrets: textSecrets,
  apiUrl: 'https://openrouter.ai/api/v1',
  linkHeaders: keyHeader,
}
