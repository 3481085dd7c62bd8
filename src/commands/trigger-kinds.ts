import { falWebhookOf, predictionOf } from '../provider/webhooks/shapes.ts'
import { falKeyOf, signFalWebhook } from '../wire/fal-signature.ts'
import { sign } from '../wire/signature.ts'
import { signStandardWebhook } from '../wire/standard-webhooks.ts'

export type Ending = 'ok' | 'error'

/** The values that a signature needs. `secret` is the signing secret of the key, or PROVIDER_SECRET_KEY for fal. */
export type Signing = { id: string; jobId: string; account: string; secret: string; timestampSeconds: number }

/** How an API sends the end of a job. */
export type Sender = {
  body: (jobId: string, ending: Ending) => object
  /** Undefined where webhooks are not signed. */
  headers: ((body: Buffer, signing: Signing) => Record<string, string>) | undefined
  /** Makes a job's id from a uuid, for an API whose ids have another form. */
  jobIdOf?: (uuid: string) => string
}

const [link, image] = ['https://media.example/sample.mp4', 'https://media.example/sample.png']
const message = 'sample failure'
const output = { images: [{ url: image, width: 64, height: 64 }] }
const error = { code: 'GENERATION_FAILED', message }
const ends = (jobId: string, ending: Ending) =>
  ending === 'ok'
    ? { request_id: jobId, status: 'COMPLETED' as const, model: 'sample-image', output }
    : { request_id: jobId, status: 'FAILED' as const, model: 'sample-image', error }

/** The body of a notification of the generation queue API (spec, Events). */
export function notificationOf(jobId: string, ending: Ending): object {
  return ending === 'ok'
    ? {
        request_id: jobId,
        status: 'OK',
        payload: { model: 'sample-image', output: { images: [{ url: image }] }, cost: 4 },
      }
    : { request_id: jobId, status: 'ERROR', error }
}

const standard: Sender['headers'] = (body, signing) => signStandardWebhook(body, signing)

export const senders: Readonly<Record<string, Sender>> = {
  fal: {
    body: (jobId, ending) => falWebhookOf(ends(jobId, ending)),
    headers: (body, { jobId: requestId, account: userId, secret, timestampSeconds }) =>
      signFalWebhook(body, { key: falKeyOf(Buffer.from(secret, 'base64')), requestId, userId, timestampSeconds }),
  },
  gemini: {
    // There is no event for a failure.
    body: (id) => ({ type: 'video.generated', version: 'v1', data: { id, file_name: 'files/sample' } }),
    headers: standard,
    jobIdOf: (uuid) => `models/sample/operations/${uuid}`,
  },
  luma: {
    body: (id, ending) =>
      ending === 'ok'
        ? { id, state: 'completed', model: 'ray-2', assets: { video: link } }
        : { id, state: 'failed', model: 'ray-2', failure_reason: message },
    headers: undefined,
  },
  'openrouter-video': {
    body: (id, ending) => {
      const status = ending === 'ok' ? 'completed' : 'failed'
      return { type: `video.generation.${status}`, data: { id, status, ...(ending === 'error' && { error: message }) } }
    },
    headers: (body, { id, secret, timestampSeconds }) => ({
      'x-openrouter-idempotency-key': id,
      'x-openrouter-signature': sign(body, secret, timestampSeconds, ','),
    }),
  },
  replicate: { body: (jobId, ending) => predictionOf(ends(jobId, ending)), headers: standard },
  'standard-webhooks': { body: notificationOf, headers: standard },
}
