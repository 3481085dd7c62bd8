import { randomBytes, randomUUID } from 'node:crypto'
import { sign } from '../src/wire/signature.ts'

export const signingSecret = 'whsec_of_the_benchmark'

/** GENERATION_KEYS with that secret. */
export const generationKeys = JSON.stringify([{ name: 'bench', api_key: 'service_live_of_the_benchmark', signing_secret: signingSecret }])

/** About what a link with a storage signature in it makes of a notification. */
const bodyBytes = 1200

export type Notified = { requestId: string; body: Buffer }

/** The webhook of audio has its only link, so landing it needs no call to the provider before; it is completed later. */
export function audioNotification(requestId: string = randomUUID()): Notified {
  const link = (padding: string) => `https://media.example/${requestId}.mp3?signature=${padding}`
  return padded(requestId, (padding) => ({
    request_id: requestId,
    status: 'OK',
    payload: { model: 'lyra-audio', output: { audio: { url: link(padding) } }, cost: 2 },
  }))
}

export function errorNotification(requestId: string = randomUUID()): Notified {
  return padded(requestId, (padding) => ({
    request_id: requestId,
    status: 'ERROR',
    error: { code: 'GENERATION_FAILED', message: `the model gave up: ${padding}` },
  }))
}

function padded(requestId: string, notification: (padding: string) => object): Notified {
  const missing = bodyBytes - JSON.stringify(notification('')).length
  // Random, so that no layer below gets to compress it away.
  const padding = randomBytes(Math.ceil(missing / 2))
    .toString('hex')
    .slice(0, missing)
  return { requestId, body: Buffer.from(JSON.stringify(notification(padding))) }
}

/** One whole HTTP request as the provider would write it, under an id of its own. */
export function signedRequest({ body }: Notified, nowSeconds: number): Buffer {
  const head = [
    'POST /webhooks HTTP/1.1',
    'host: 127.0.0.1',
    'user-agent: mediadock-provider/0.1.0',
    'content-type: application/json',
    `content-length: ${body.length}`,
    `x-service-webhook-id: ${randomUUID()}`,
    `x-service-timestamp: ${nowSeconds}`,
    `x-service-signature: ${sign(body, signingSecret, nowSeconds)}`,
  ]
  return Buffer.concat([Buffer.from(`${head.join('\r\n')}\r\n\r\n`), body])
}
