import { createHmac, randomBytes, randomUUID } from 'node:crypto'
import { sign } from '../src/wire/signature.ts'

export const signingSecret = 'whsec_of_the_benchmark'
export const keyName = 'bench'

/** GENERATION_KEYS with that secret. */
export const generationKeys = JSON.stringify([
  { name: keyName, api_key: 'service_live_of_the_benchmark', signing_secret: signingSecret },
])

/** About what a link with a storage signature in it makes of a notification. */
export const bodyBytes = 1200

/**
 * - `direct`: audio and errors in turn, which land without a call to the provider; audio is completed later
 * - `image`: one link, of which the rest has to be fetched
 * - `mixed`: `direct`, with an image among so many
 * - `stripe`: events of Stripe, each about another product, for stripe-sync-engine
 */
export type Kind = 'direct' | 'image' | 'mixed' | 'stripe'
const mixedEvery = 25

type Body = 'audio' | 'error' | 'image'

/** The provider's stand-in tells by this digit of the request id what it is asked for. */
const marks: Record<Body, string> = { audio: '8', error: '9', image: 'a' }
const markAt = 19

export function markOf(requestId: string): Body | undefined {
  return (['audio', 'error', 'image'] as const).find((body) => marks[body] === requestId[markAt])
}

const texts: Record<Body, (id: string, padding: string) => string> = {
  audio: (id, padding) =>
    `{"request_id":"${id}","status":"OK","payload":{"model":"lyra-audio","output":{"audio":{"url":"https://media.example/${id}.mp3?signature=${padding}"}},"cost":2}}`,
  error: (id, padding) =>
    `{"request_id":"${id}","status":"ERROR","error":{"code":"GENERATION_FAILED","message":"the model gave up: ${padding}"}}`,
  image: (id, padding) =>
    `{"request_id":"${id}","status":"OK","payload":{"model":"aurora-image","output":{"images":[{"url":"https://media.example/${id}.png?signature=${padding}"}]},"cost":4}}`,
}

/** Random, so that no layer below gets to compress it away; each padding is another piece of it. */
const pool = randomBytes(1 << 20).toString('hex')
const idLength = 36
const paddingLength = Object.fromEntries(
  Object.entries(texts).map(([body, text]) => [body, bodyBytes - text('x'.repeat(idLength), '').length]),
)

export type Signed = { requestId: string; bytes: Buffer }

/** One complete HTTP request in the provider's form, with new ids, ready for the socket. */
export function signedRequest(kind: Kind, index: number, nowSeconds: number): Signed {
  if (kind === 'stripe') return signedEvent(nowSeconds)
  const isImage = kind === 'image' || (kind === 'mixed' && index % mixedEvery === 0)
  const what: Body = isImage ? 'image' : index % 2 === 0 ? 'audio' : 'error'
  const id = randomUUID()
  const requestId = `${id.slice(0, markAt)}${marks[what]}${id.slice(markAt + 1)}`
  const length = paddingLength[what] ?? 0
  const from = Math.floor(Math.random() * (pool.length - length))
  const body = Buffer.from(texts[what](requestId, pool.slice(from, from + length)), 'latin1')
  const head = `POST /webhooks HTTP/1.1\r
host: 127.0.0.1\r
user-agent: mediadock-provider/0.1.0\r
content-type: application/json\r
content-length: ${body.length}\r
x-service-webhook-id: ${randomUUID()}\r
x-service-timestamp: ${nowSeconds}\r
x-service-signature: ${sign(body, signingSecret, nowSeconds)}\r
\r
`
  const bytes = Buffer.allocUnsafe(head.length + body.length)
  bytes.write(head, 'latin1')
  body.copy(bytes, head.length)
  return { requestId, bytes }
}

/** One event of Stripe, as its documentation shows a new product, as long as a delivery. */
function signedEvent(nowSeconds: number): Signed {
  const id = randomUUID()
  const text = (description: string) =>
    JSON.stringify({
      id: `evt_${id}`,
      object: 'event',
      api_version: '2020-08-27',
      created: nowSeconds,
      data: {
        object: {
          id: `prod_${id}`,
          object: 'product',
          active: true,
          created: nowSeconds,
          default_price: null,
          description,
          images: [],
          livemode: false,
          metadata: {},
          name: 'A product of the benchmark',
          package_dimensions: null,
          shippable: null,
          statement_descriptor: null,
          unit_label: null,
          updated: nowSeconds,
          url: null,
        },
      },
      livemode: false,
      pending_webhooks: 1,
      request: { id: null, idempotency_key: null },
      type: 'product.created',
    })
  const length = bodyBytes - text('').length
  const from = Math.floor(Math.random() * (pool.length - length))
  const body = text(pool.slice(from, from + length))
  const signature = createHmac('sha256', signingSecret).update(`${nowSeconds}.${body}`).digest('hex')
  const head = `POST /webhooks HTTP/1.1\r
host: 127.0.0.1\r
user-agent: Stripe/1.0 (+https://stripe.com/docs/webhooks)\r
content-type: application/json; charset=utf-8\r
content-length: ${body.length}\r
stripe-signature: t=${nowSeconds},v1=${signature}\r
\r
`
  return { requestId: id, bytes: Buffer.from(head + body, 'latin1') }
}
