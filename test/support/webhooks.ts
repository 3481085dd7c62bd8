import { randomUUID } from 'node:crypto'
import { sign } from '../../src/wire/signature.ts'
import { send } from './http.ts'
import { liveKey } from './receiver.ts'

export type Sample = { requestId: string; body: Buffer }

export function okImage(requestId: string = randomUUID()): Sample {
  return sample({
    request_id: requestId,
    status: 'OK',
    payload: { model: 'aurora-image', output: { images: [{ url: `https://media.test/${requestId}.png` }] }, cost: 4 },
  })
}

export function okVideo(requestId: string = randomUUID()): Sample {
  return sample({
    request_id: requestId,
    status: 'OK',
    payload: { model: 'vela', output: { video: { url: `https://media.test/${requestId}.mp4` } }, cost: 12 },
  })
}

export function okAudio(requestId: string = randomUUID()): Sample {
  return sample({
    request_id: requestId,
    status: 'OK',
    payload: { model: 'lyra-audio', output: { audio: { url: `https://media.test/${requestId}.mp3` } }, cost: 2 },
  })
}

export function failed(requestId: string = randomUUID()): Sample {
  return sample({
    request_id: requestId,
    status: 'ERROR',
    error: { code: 'GENERATION_FAILED', message: 'the model gave up' },
  })
}

function sample(json: { request_id: string; [field: string]: unknown }): Sample {
  return { requestId: json.request_id, body: Buffer.from(JSON.stringify(json)) }
}

export type Delivery = {
  webhookId?: string
  secret?: string
  t?: number
  headers?: Record<string, string>
}

/** The headers of a signed delivery, as the provider sends them. */
export function headersFor(
  body: Uint8Array,
  { webhookId = randomUUID(), secret = liveKey.signing_secret, t = nowSeconds(), headers = {} }: Delivery = {},
) {
  return {
    'content-type': 'application/json',
    'x-service-webhook-id': webhookId,
    'x-service-timestamp': String(t),
    'x-service-signature': sign(body, secret, t),
    ...headers,
  }
}

/** Posts a signed body and answers status and JSON. */
export async function deliver(
  url: string,
  body: Buffer,
  delivery: Delivery = {},
): Promise<{ status: number; json: unknown; headers: Headers }> {
  const { status, headers, text } = await send(url, 'POST', { headers: headersFor(body, delivery), body })
  return { status, json: JSON.parse(text), headers }
}

export function nowSeconds(): number {
  return Math.floor(Date.now() / 1000)
}
