import { createHash } from 'node:crypto'
import { z } from 'zod'
import { falMessage } from '../../../wire/fal-signature.ts'
import { judge, stepBytes, timestampPattern } from '../../../wire/signature.ts'
import { webhookIdPattern } from '../../domain/delivery.ts'
import type { Arrived, SourceSecret, SourceVerification, Steps } from '../../domain/source.ts'
import { isSignedBy, publicKeyPattern } from '../ed25519.ts'
import { idIn } from '../ids.ts'

const signedHeaders = [
  'x-fal-webhook-request-id',
  'x-fal-webhook-user-id',
  'x-fal-webhook-timestamp',
  'x-fal-webhook-signature',
] as const

/** 64 bytes in hex. */
const signaturePattern = /^[0-9a-fA-F]{128}$/

/** fal publishes few keys. A longer list is not read further, because every signature is tried with every key. */
const maxPublicKeys = 8
const jwksSchema = z.object({ keys: z.array(z.unknown()) })
/** The documentation promises only `x`. */
const jwkSchema = z.object({
  x: z.string().regex(publicKeyPattern),
  kty: z.literal('OKP').optional(),
  crv: z.literal('Ed25519').optional(),
})

/** Returns up to 8 public keys of a key set, each as `x`; undefined where there is none. */
export function publicKeysOf(jwks: unknown): string[] | undefined {
  const parsed = jwksSchema.safeParse(jwks)
  if (!parsed.success) return undefined
  const keys = parsed.data.keys.slice(0, maxPublicKeys).flatMap((key) => jwkSchema.safeParse(key).data?.x ?? [])
  return keys.length === 0 ? undefined : keys
}

/** The id of the job. fal sends one webhook for a job, and sends it again under the same id. */
export const identify = idIn('X-Fal-Webhook-Request-Id')

/**
 * Verifies Ed25519 over the request id, the user id, the timestamp and the SHA-256 of the bytes in hex, joined by LF.
 * The headers name no key, so every public key is tried. fal signs the webhooks of all its customers with the same
 * keys, so a valid signature counts only with the user id of the account.
 */
export function* verify(
  { header, body }: Arrived,
  secrets: readonly SourceSecret[],
  nowSeconds: number,
): Steps<SourceVerification> {
  const sent = signedHeaders.map(header)
  if (sent.some((values) => values.length === 0))
    return { ok: false, cause: 'missing_header', timestampSeconds: undefined }
  const [requestId = '', userId = '', timestamp = '', signature = ''] = sent.map(([value]) => value)
  if (
    sent.some((values) => values.length > 1) ||
    !webhookIdPattern.test(requestId) ||
    !webhookIdPattern.test(userId) ||
    !timestampPattern.test(timestamp) ||
    !signaturePattern.test(signature)
  )
    return { ok: false, cause: 'malformed_header', timestampSeconds: undefined }

  const timestampSeconds = Number(timestamp)
  const sha256 = createHash('sha256')
  for (let at = 0; at < body.length; at += stepBytes) {
    if (at > 0) yield
    sha256.update(body.subarray(at, at + stepBytes))
  }
  const message = falMessage({ requestId, userId, timestamp, sha256: sha256.digest('hex') })
  const signed = Buffer.from(signature, 'hex')
  const signer = secrets.find(
    ({ account, signingSecret }) => account === userId && isSignedBy(signingSecret, message, signed),
  )
  return judge({ keyName: signer?.name, timestampSeconds, nowSeconds })
}
