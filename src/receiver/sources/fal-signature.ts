import { createHash } from 'node:crypto'
import { z } from 'zod'
import { falMessage } from '../../wire/fal-signature.ts'
import { maxCandidates, stepBytes, timestampPattern, verificationOf } from '../../wire/signature.ts'
import { webhookIdPattern } from '../domain/delivery.ts'
import type { SourceSecret, SourceVerification, Steps, Webhook } from '../domain/source.ts'
import { isSignedBy, publicKeyPattern, readHeaders } from './signatures.ts'

const signedHeaders = {
  'x-fal-webhook-request-id': webhookIdPattern,
  'x-fal-webhook-user-id': webhookIdPattern,
  'x-fal-webhook-timestamp': timestampPattern,
  // 64 bytes in hex.
  'x-fal-webhook-signature': /^[0-9a-fA-F]{128}$/,
}

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
  const keys = parsed.data.keys.slice(0, maxCandidates).flatMap((key) => jwkSchema.safeParse(key).data?.x ?? [])
  return keys.length === 0 ? undefined : keys
}

/**
 * Verifies Ed25519 over the request id, the user id, the timestamp and the SHA-256 of the bytes in hex, joined by LF.
 * The headers name no key, so every public key is tried. fal signs the webhooks of all its customers with the same
 * keys, so a valid signature counts only with the user id of the account.
 */
export function* verify(
  { header, body }: Webhook,
  secrets: readonly SourceSecret[],
  nowSeconds: number,
): Steps<SourceVerification> {
  const sent = readHeaders(header, signedHeaders)
  if (!Array.isArray(sent)) return sent
  const [requestId = '', userId = '', timestamp = '', signature = ''] = sent
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
  return verificationOf({ keyName: signer?.name, timestampSeconds, nowSeconds })
}
