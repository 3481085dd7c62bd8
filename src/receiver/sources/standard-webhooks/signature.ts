import { createHmac, timingSafeEqual } from 'node:crypto'
import { toleranceSeconds, type Secret } from '../../../wire/signature.ts'
import type { Arrived, SecretForm, SourceVerification, Steps } from '../../domain/source.ts'
import { idIn } from '../ids.ts'

const stepBytes = 64 * 1024
const maxHeaderBytes = 1024
const maxCandidates = 8
const timestampPattern = /^[0-9]{1,12}$/
/** 32 bytes in standard base64 with padding. */
const digestPattern = /^[A-Za-z0-9+/]{43}=$/
const base64Pattern = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

/** With a dot in the id, the signed bytes could be split into another id, timestamp and body. */
const idPattern = /^[\x21-\x2d\x2f-\x7e]{1,255}$/

/** The id of a delivery stays the same when the sender repeats it. */
export const identify = idIn('webhook-id', { pattern: idPattern, form: 'visible ASCII characters without a dot' })

/**
 * Returns the HMAC key of a symmetric secret: `whsec_` and the base64 of 24 to 64 bytes. Returns undefined for other
 * texts.
 */
export function hmacKeyOf(secret: string): Buffer | undefined {
  const encoded = secret.startsWith('whsec_') ? secret.slice('whsec_'.length) : undefined
  if (encoded === undefined || !base64Pattern.test(encoded)) return undefined
  const key = Buffer.from(encoded, 'base64')
  return key.length >= 24 && key.length <= 64 ? key : undefined
}

export const secrets: SecretForm = { mustBe: 'be whsec_ and the base64 of 24 to 64 bytes', bytesOf: hmacKeyOf }

/**
 * Verifies `v1` of Standard Webhooks: HMAC-SHA256 over `<webhook-id>.<webhook-timestamp>.` and the bytes as they were
 * sent. Any one of up to 8 `v1` signatures may match; other schemes are ignored. Compares every secret with every
 * candidate in constant time. A secret of another form matches nothing.
 */
export function* verify(
  { header, body }: Arrived,
  secrets: readonly Secret[],
  nowSeconds: number,
): Steps<SourceVerification> {
  const signed = ['webhook-id', 'webhook-timestamp', 'webhook-signature'].map(header)
  if (signed.some((values) => values.length === 0))
    return { ok: false, cause: 'missing_header', timestampSeconds: undefined }
  const [id = '', timestamp = '', signature = ''] = signed.map(([value]) => value)
  const candidates = candidatesOf(signature)
  if (
    signed.some((values) => values.length > 1) ||
    !idPattern.test(id) ||
    !timestampPattern.test(timestamp) ||
    candidates === undefined
  )
    return { ok: false, cause: 'malformed_header', timestampSeconds: undefined }

  const timestampSeconds = Number(timestamp)
  let keyName: string | undefined
  for (const { name, signingSecret } of secrets) {
    const key = hmacKeyOf(signingSecret)
    if (key === undefined) continue
    const hmac = createHmac('sha256', key).update(`${id}.${timestamp}.`)
    for (let at = 0; at < body.length; at += stepBytes) {
      if (at > 0) yield
      hmac.update(body.subarray(at, at + stepBytes))
    }
    const expected = hmac.digest()
    for (const candidate of candidates) {
      const equal = timingSafeEqual(expected, candidate)
      if (equal && keyName === undefined) keyName = name
    }
    if (body.length > stepBytes) yield
  }
  if (keyName === undefined) return { ok: false, cause: 'no_matching_secret', timestampSeconds }
  const ageSeconds = nowSeconds - timestampSeconds
  if (ageSeconds > toleranceSeconds) return { ok: false, cause: 'timestamp_too_old', timestampSeconds }
  if (ageSeconds < -toleranceSeconds) return { ok: false, cause: 'timestamp_in_future', timestampSeconds }
  return { ok: true, keyName, timestampSeconds }
}

/** The digests of the `v1` signatures; undefined where there is none, too many, or one of another form. */
function candidatesOf(signature: string): Buffer[] | undefined {
  if (signature.length > maxHeaderBytes) return undefined
  const digests = signature
    .split(' ')
    .filter((element) => element.startsWith('v1,'))
    .map((element) => element.slice('v1,'.length))
  if (digests.length === 0 || digests.length > maxCandidates) return undefined
  return digests.every((digest) => digestPattern.test(digest))
    ? digests.map((digest) => Buffer.from(digest, 'base64'))
    : undefined
}
