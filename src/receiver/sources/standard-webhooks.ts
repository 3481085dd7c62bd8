import { maxCandidates, maxHeaderBytes, timestampPattern, verificationOf, verifyHmac } from '../../wire/signature.ts'
import { bytesAfter, hmacKeyOf } from '../../wire/standard-webhooks.ts'
import type { SecretForm, SourceKind, SourceSecret, SourceVerification, Steps, Webhook } from '../domain/source.ts'
import { fetchResult } from './generation-queue/result.ts'
import { submit } from './generation-queue/submit.ts'
import { parse } from './generation-queue/to-report.ts'
import { idIn, isSignedBy, readHeaders } from './signatures.ts'

/** With a dot in the id, the signed bytes could be split into another id, timestamp and body. */
const idPattern = /^[\x21-\x2d\x2f-\x7e]{1,255}$/

/** The id of a delivery stays the same when the sender repeats it. */
export const identify = idIn('webhook-id', { pattern: idPattern, form: 'visible ASCII characters without a dot' })

export const secrets: SecretForm = {
  mustBe: 'be whsec_ and the base64 of 24 to 64 bytes, or whpk_ and the base64 of an Ed25519 public key',
  keyBytes: (secret) => hmacKeyOf(secret) ?? publicKeyOf(secret),
}

function publicKeyOf(secret: string): Buffer | undefined {
  const bytes = bytesAfter('whpk_', secret)
  return bytes?.length === 32 ? bytes : undefined
}

/**
 * Verifies Standard Webhooks over `<webhook-id>.<webhook-timestamp>.` and the bytes as they were sent: `v1`
 * (HMAC-SHA256) against secrets, and `v1a` (Ed25519) against public keys. Any one of up to 8 signatures may match;
 * other schemes and forms are skipped. A secret of another form matches nothing.
 */
export function* verify(
  { header, body }: Webhook,
  known: readonly SourceSecret[],
  nowSeconds: number,
): Steps<SourceVerification> {
  const sent = readHeaders(header, {
    'webhook-id': idPattern,
    'webhook-timestamp': timestampPattern,
    'webhook-signature': /^/,
  })
  if (!Array.isArray(sent)) return sent
  const [id = '', timestamp = '', signature = ''] = sent
  const candidates = candidatesOf(signature)
  if (candidates === undefined) return { ok: false, cause: 'malformed_header', timestampSeconds: undefined }

  const head = `${id}.${timestamp}.`
  const timestampSeconds = Number(timestamp)
  const { v1, v1a } = candidates
  const keyOf = ({ signingSecret }: SourceSecret) => hmacKeyOf(signingSecret)
  const bySecret = yield* verifyHmac(
    body,
    { head, timestampSeconds, candidates: v1 },
    { secrets: known, keyOf, nowSeconds },
  )
  if (v1a.length === 0 || bySecret.ok || bySecret.cause !== 'no_matching_secret') return bySecret
  const message = Buffer.concat([Buffer.from(head), body])
  for (const { name: keyName, signingSecret } of known) {
    const x = publicKeyOf(signingSecret)?.toString('base64url')
    if (x === undefined) continue
    for (const candidate of v1a) {
      if (isSignedBy(x, message, candidate)) return verificationOf({ keyName, timestampSeconds, nowSeconds })
      yield
    }
  }
  return bySecret
}

/** 32 bytes in standard base64 with padding. */
const v1Pattern = /^v1,([A-Za-z0-9+/]{43}=)$/
/** 64 bytes in standard base64 with padding. */
const v1aPattern = /^v1a,([A-Za-z0-9+/]{86}==)$/

/** The signatures of the two schemes; undefined where there is none or too many. Others are skipped. */
function candidatesOf(signature: string): { v1: Buffer[]; v1a: Buffer[] } | undefined {
  if (signature.length > maxHeaderBytes) return undefined
  const elements = signature.split(' ')
  const matching = (pattern: RegExp) =>
    elements.flatMap((element) => {
      const encoded = pattern.exec(element)?.[1]
      return encoded === undefined ? [] : [Buffer.from(encoded, 'base64')]
    })
  const [v1, v1a] = [matching(v1Pattern), matching(v1aPattern)]
  const count = v1.length + v1a.length
  return count === 0 || count > maxCandidates ? undefined : { v1, v1a }
}

/** The API of the default source, with webhooks signed as in Standard Webhooks: for your own engines and gateways. */
export const standardWebhooks: SourceKind = {
  identify,
  verify,
  parse,
  fetchResult,
  submit,
  signatureHeaders: ['webhook-signature'],
  signed: true,
  idempotentSubmit: true,
  secrets,
}
