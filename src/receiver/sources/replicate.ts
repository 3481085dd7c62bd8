import { z } from 'zod'
import type { FilesPlace } from '../../platform/settings.ts'
import type { SourceKind } from '../domain/source.ts'
import { bearer, canceled, fetchJob, readJob, refusedHere, submitJob, text } from './answers.ts'
import { mediaIn } from './media.ts'
import { identify, secrets, verify } from './standard-webhooks.ts'

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
function read(json: unknown, archive?: FilesPlace) {
  return readJob(json, predictionSchema, ({ status, output, error, ...prediction }) => {
    const { model, created_at: createdAt, completed_at: completedAt } = prediction
    const stated = { model, createdAt, completedAt }
    switch (status) {
      case 'starting':
        return 'IN_QUEUE'
      case 'processing':
        return 'IN_PROGRESS'
      case 'succeeded': {
        const found = mediaIn(output, archive)
        // Replicate removes an output after an hour, so a later poll finds no media.
        return typeof found === 'string' ? found : { ...stated, status: 'COMPLETED', ...found }
      }
      case 'failed': {
        const message = typeof error === 'string' && error !== '' ? error : 'Replicate reported no cause'
        return { ...stated, status: 'FAILED', error: { code: 'failed', message } }
      }
      case 'canceled':
      // Its deadline passed before it started.
      case 'aborted':
        return { ...stated, status: 'CANCELED' }
      default:
        return 'unknown_status'
    }
  })
}

const pathOf = (jobId: string) => `/predictions/${encodeURIComponent(jobId)}`
const name = String.raw`(?!\.)[A-Za-z0-9._-]{1,100}/(?!\.)[A-Za-z0-9._-]{1,100}`
const namePattern = new RegExp(`^${name}$`)
const versionPattern = new RegExp(`^(?:(?:${name})?:)?([0-9a-f]{64})$`)

/** The predictions of Replicate, whose webhooks are signed with Standard Webhooks. */
export const replicate: SourceKind = {
  identify,
  verify,
  /** A prediction that runs is no reason to poll: its end brings another webhook. */
  parse: read,
  fetchResult: async ({ jobId }, api) => fetchJob({ path: pathOf(jobId), jobId, read }, api),
  /** Submits to `owner/name`, to `owner/name:version` or to a version. Asks only for the webhook of the end. */
  submit: async ({ model, input, webhookUrl }, api) => {
    const [, version] = versionPattern.exec(model) ?? []
    if (version === undefined && !namePattern.test(model))
      return refusedHere('the model must be owner/name, owner/name:version or a version')
    const path = version === undefined ? `/models/${model}/predictions` : '/predictions'
    const body = { version, input, webhook: webhookUrl, webhook_events_filter: ['completed'] }
    return submitJob({ path, body }, api)
  },
  /** A prediction that has ended stays as it is. */
  cancel: async ({ jobId }, { url, apiKey, call }) =>
    canceled(await call({ url: `${url}${pathOf(jobId)}/cancel`, method: 'POST', headers: bearer(apiKey) })),
  signatureHeaders: ['webhook-signature'],
  signed: true,
  secrets,
  apiUrl: 'https://api.replicate.com/v1',
  linkLifeSeconds: 3600,
}
