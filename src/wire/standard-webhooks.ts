import { createHmac } from 'node:crypto'

const base64Pattern = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

/**
 * Returns the HMAC key of a symmetric secret: `whsec_` and the base64 of 24 to 64 bytes. Returns undefined for other
 * texts.
 */
export function hmacKeyOf(secret: string): Buffer | undefined {
  const key = bytesAfter('whsec_', secret)
  return key !== undefined && key.length >= 24 && key.length <= 64 ? key : undefined
}

/** Returns the bytes that a secret carries in base64 after its prefix. */
export function bytesAfter(prefix: string, secret: string): Buffer | undefined {
  const encoded = secret.startsWith(prefix) ? secret.slice(prefix.length) : undefined
  return encoded !== undefined && base64Pattern.test(encoded) ? Buffer.from(encoded, 'base64') : undefined
}

/** The secret cannot sign webhooks of this scheme. */
export class UnusableSecretError extends Error {
  override name = 'UnusableSecretError'
  code = 'unusable_secret'
}

/** Signs a body as Standard Webhooks `v1`. Returns the headers. Throws for a secret that is not of the form. */
export function signStandardWebhook(
  body: Uint8Array,
  { id, secret, timestampSeconds }: { id: string; secret: string; timestampSeconds: number },
): Record<string, string> {
  const key = hmacKeyOf(secret)
  if (key === undefined) throw new UnusableSecretError('the secret must be whsec_ and the base64 of 24 to 64 bytes')
  const timestamp = String(timestampSeconds)
  const digest = createHmac('sha256', key).update(`${id}.${timestamp}.`).update(body).digest('base64')
  return { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': `v1,${digest}` }
}
