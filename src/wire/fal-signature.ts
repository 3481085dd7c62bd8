import { createHash, createHmac, createPrivateKey, createPublicKey, sign, type KeyObject } from 'node:crypto'

/** The header of an Ed25519 private key in PKCS 8, before its 32 bytes. */
const pkcs8 = Buffer.from('302e020100300506032b657004220420', 'hex')

/** The private key with which the local provider signs in the place of fal. It is derived from PROVIDER_SECRET_KEY. */
export function falKeyOf(secretKey: Buffer): KeyObject {
  const seed = createHmac('sha256', secretKey).update('webhooks in the shape of fal').digest()
  return createPrivateKey({ key: Buffer.concat([pkcs8, seed]), format: 'der', type: 'pkcs8' })
}

/** The key set of a private key, as fal publishes it. */
export function falKeySetOf(key: KeyObject): { keys: object[] } {
  return { keys: [createPublicKey(key).export({ format: 'jwk' })] }
}

type Signed = { requestId: string; userId: string; timestamp: string; sha256: string }

/** Returns the bytes that fal signs for a webhook. `sha256` is the digest of its body in hex. */
export function falMessage({ requestId, userId, timestamp, sha256 }: Signed): Buffer {
  return Buffer.from([requestId, userId, timestamp, sha256].join('\n'))
}

type Signing = { key: KeyObject; requestId: string; userId: string; timestampSeconds: number }

/** Signs a body as fal does. Returns the headers. */
export function signFalWebhook(
  body: Uint8Array,
  { key, requestId, userId, timestampSeconds }: Signing,
): Record<string, string> {
  const timestamp = String(timestampSeconds)
  const sha256 = createHash('sha256').update(body).digest('hex')
  const signature = sign(null, falMessage({ requestId, userId, timestamp, sha256 }), key)
  return {
    'x-fal-webhook-request-id': requestId,
    'x-fal-webhook-user-id': userId,
    'x-fal-webhook-timestamp': timestamp,
    'x-fal-webhook-signature': signature.toString('hex'),
  }
}
