import { createPublicKey, verify, type KeyObject } from 'node:crypto'
import { webhookIdPattern } from '../domain/delivery.ts'
import type { HeaderValues, Identity, SecretForm, SourceVerification, WebhookHead } from '../domain/source.ts'

/** Returns the `identify` of a kind whose deliveries carry their id in a header. */
export function idIn(
  name: string,
  { pattern = webhookIdPattern, form = 'visible ASCII characters' } = {},
): (webhook: WebhookHead) => Identity {
  const header = name.toLowerCase()
  return (webhook) => {
    const stated = webhook.header(header)
    const [webhookId] = stated
    if (webhookId !== undefined && stated.length === 1 && pattern.test(webhookId)) return { ok: true, webhookId }
    return { ok: false, stated: webhookId, message: `${name} must be given once, as 1 to 255 ${form}` }
  }
}

/** Reads headers, each of which must be sent once and match its pattern. Returns the values, or the refusal. */
export function readHeaders(
  header: HeaderValues,
  patterns: Readonly<Record<string, RegExp>>,
): string[] | Extract<SourceVerification, { ok: false }> {
  const sent = Object.entries(patterns).map(([name, pattern]) => ({ values: header(name), pattern }))
  if (sent.some(({ values }) => values.length === 0))
    return { ok: false, cause: 'missing_header', timestampSeconds: undefined }
  if (sent.some(({ values, pattern }) => values.length > 1 || !pattern.test(values[0] ?? '')))
    return { ok: false, cause: 'malformed_header', timestampSeconds: undefined }
  return sent.flatMap(({ values }) => values)
}

/** 128 bits. Shorter secrets could be guessed. */
const minSecretBytes = 16

/** Secrets whose text is the HMAC key. HMAC pads a key with zero bytes, so trailing ones do not change a signature. */
export const textSecrets: SecretForm = {
  mustBe: `have at least ${minSecretBytes} bytes`,
  keyBytes: (secret) => {
    const bytes = Buffer.from(secret.replace(/\0+$/, ''))
    return bytes.length >= minSecretBytes ? bytes : undefined
  },
}

/** 32 bytes in base64url: `x` of a JWK. */
export const publicKeyPattern = /^[A-Za-z0-9_-]{43}$/

/** True if the private key of `x` signed the message with Ed25519. False if `x` is not a key. */
export function isSignedBy(x: string, message: Buffer, signature: Buffer): boolean {
  const key = publicKeyPattern.test(x) ? publicKeyOf(x) : undefined
  return key !== undefined && verify(null, message, key, signature)
}

function publicKeyOf(x: string): KeyObject | undefined {
  try {
    return createPublicKey({ format: 'jwk', key: { kty: 'OKP', crv: 'Ed25519', x } })
  } catch {
    return undefined
  }
}
