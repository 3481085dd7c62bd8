import { falKeyOf, signFalWebhook } from '../../wire/fal-signature.ts'
import type { Output, RequestStatus } from '../../wire/schemas.ts'
import { sign } from '../../wire/signature.ts'
import { signStandardWebhook } from '../../wire/standard-webhooks.ts'

/** The other APIs that the provider imitates, for tests and laptops (docs/provider.md). */
export type Shape = 'fal' | 'replicate'

const mark = 'shape='

/** Stores the shape of a request in the fragment of its webhook URL, which HTTP never sends. */
export function withShape(webhookUrl: string, shape: Shape): string {
  return `${webhookUrl.split('#', 1)[0]}#${mark}${shape}`
}

export function shapeOf(webhookUrl: string): Shape | undefined {
  const [, fragment] = webhookUrl.split('#', 2)
  return fragment === `${mark}fal` ? 'fal' : fragment === `${mark}replicate` ? 'replicate' : undefined
}

/** A request as these APIs describe it. */
export type ShapedJob = {
  request_id: string
  status: RequestStatus
  model?: string | undefined
  output?: Output | undefined
  error?: { code: string; message: string } | undefined
  created_at?: string | undefined
  completed_at?: string | undefined
}

const replicateStatus = {
  IN_QUEUE: 'starting',
  IN_PROGRESS: 'processing',
  COMPLETED: 'succeeded',
  FAILED: 'failed',
  CANCELED: 'canceled',
} as const

/** A prediction of Replicate, as webhooks and polls carry it. */
export function predictionOf({ request_id: id, status, model, output, error, ...times }: ShapedJob): object {
  const { created_at, completed_at } = times
  return {
    id,
    model: model === undefined ? undefined : `local/${model}`,
    version: 'hidden',
    status: replicateStatus[status],
    input: {},
    output: output === undefined ? null : linksOf(output),
    error: error?.message ?? null,
    data_removed: false,
    created_at,
    completed_at,
  }
}

function linksOf(output: Output): string | string[] {
  if ('images' in output) return output.images.map(({ url }) => url)
  return 'video' in output ? output.video.url : output.audio.url
}

/** Makes the body of a webhook as fal sends it. */
export function falWebhookOf({ request_id, output, error }: ShapedJob): object {
  const ids = { request_id, gateway_request_id: request_id }
  if (error === undefined) return { error: null, ...ids, payload: output, status: 'OK' }
  return { error: 'Invalid status code: 500', ...ids, payload: falFailure(error), status: 'ERROR' }
}

/** The body of a failed request of fal. */
export function falFailure({ message }: { message: string }): object {
  return { detail: message, error_type: 'internal_error' }
}

type Sent = {
  id: string
  url: string
  /** The signing secret of the key. */
  secret: string
  accountId: string
  secretKey: Buffer
  timestampSeconds: number
}

/** The headers of a webhook: its id and its signature. Throws if the secret cannot sign in the shape. */
export function signedHeaders(body: Buffer, sent: Sent): Record<string, string> {
  const { id, secret, accountId: userId, secretKey, timestampSeconds } = sent
  switch (shapeOf(sent.url)) {
    case 'replicate':
      return signStandardWebhook(body, { id, secret, timestampSeconds })
    case 'fal': {
      const requestId = String(Object(JSON.parse(body.toString())).request_id)
      return signFalWebhook(body, { key: falKeyOf(secretKey), requestId, userId, timestampSeconds })
    }
    case undefined:
      return {
        'x-service-webhook-id': id,
        'x-service-timestamp': String(timestampSeconds),
        'x-service-signature': sign(body, secret, timestampSeconds),
      }
  }
}
