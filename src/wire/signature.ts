import { createHmac, timingSafeEqual } from 'node:crypto'

/** The greatest age of a timestamp, in both directions (spec, Events and Limits). */
export const toleranceSeconds = 300

/**
 * The greatest length of a signature header (docs/specification-decisions.md). Eight signatures take 560 bytes. The
 * rest leaves room for unknown schemes.
 */
export const maxHeaderBytes = 1024
/** The bytes that are hashed in one step, in about 0.1 ms. Other work runs between two steps. */
export const stepBytes = 64 * 1024
/**
 * The signatures of a delivery, or the public keys of a source, that are tried: enough for two secrets (spec, rotation)
 * beside other schemes. It bounds what a forged delivery costs.
 */
export const maxCandidates = 8
export const timestampPattern = /^[0-9]{1,12}$/
const digestPattern = /^[0-9a-fA-F]{64}$/

export type Secret = { name: string; signingSecret: string }

export type RefusalCause = 'malformed_header' | 'no_matching_secret' | 'timestamp_too_old' | 'timestamp_in_future'

export type Verification =
  | { ok: true; keyName: string; timestampSeconds: number }
  | { ok: false; cause: RefusalCause; timestampSeconds: number | undefined }

/** Signs a body (spec, Events): `t=<unix seconds>,v1=<hex HMAC-SHA256 of "<t>." and the body>`. */
export function sign(body: Uint8Array, signingSecret: string, timestampSeconds: number, separator = '.'): string {
  const t = String(timestampSeconds)
  const digest = createHmac('sha256', signingSecret).update(`${t}${separator}`).update(body).digest('hex')
  return `t=${t},v1=${digest}`
}

/**
 * Verifies the value of X-Service-Signature over the bytes as they were sent. `nowSeconds` are whole Unix seconds.
 * Compares every secret with every candidate in constant time and without an early exit, so that timing reveals nothing
 * about the secrets. Checks the signature before the time window, so a cause about the time means that the signature is
 * right. Refuses a malformed header before hashing, because its form is public. Yields after every 64 KiB hashed, so
 * that the caller can do other work in between. `separator` stands between the timestamp and the body in the signed
 * bytes.
 */
export function* verifyInSteps(
  body: Uint8Array,
  header: string,
  secrets: readonly Secret[],
  nowSeconds: number,
  separator: '.' | ',' = '.',
): Generator<undefined, Verification, undefined> {
  const parsed = parseHeader(header)
  if (!parsed) return { ok: false, cause: 'malformed_header', timestampSeconds: undefined }
  const { t, candidates } = parsed
  const signed = { head: `${t}${separator}`, timestampSeconds: Number(t), candidates }
  return yield* verifyHmac(body, signed, { secrets, keyOf: ({ signingSecret }) => signingSecret, nowSeconds })
}

/** The digests in a header, and what is signed before the body. */
type Signed = { head: string; timestampSeconds: number; candidates: readonly Buffer[] }

/** `keyOf` returns undefined for a secret of another form, with which nothing can be signed. */
type Verifier = {
  secrets: readonly Secret[]
  keyOf: (secret: Secret) => string | Buffer | undefined
  nowSeconds: number
}

/**
 * Finds the secret with which HMAC-SHA256 over `head` and the body gives one of the candidates, then checks the time.
 * Compares and yields as `verifyInSteps` describes.
 */
export function* verifyHmac(
  body: Uint8Array,
  { head, timestampSeconds, candidates }: Signed,
  { secrets, keyOf, nowSeconds }: Verifier,
): Generator<undefined, Verification, undefined> {
  let keyName: string | undefined
  for (const secret of secrets) {
    const key = keyOf(secret)
    if (key === undefined) continue
    const hmac = createHmac('sha256', key).update(head)
    for (let at = 0; at < body.length; at += stepBytes) {
      if (at > 0) yield
      hmac.update(body.subarray(at, at + stepBytes))
    }
    const expected = hmac.digest()
    for (const candidate of candidates) {
      const equal = timingSafeEqual(expected, candidate)
      if (equal && keyName === undefined) keyName = secret.name
    }
    if (body.length > stepBytes) yield
  }
  return verificationOf({ keyName, timestampSeconds, nowSeconds })
}

/** Returns the verification by the secret that matched, if any, and the age of the signature. */
export function verificationOf({ keyName, timestampSeconds, nowSeconds }: Signature): Verification {
  if (keyName === undefined) return { ok: false, cause: 'no_matching_secret', timestampSeconds }
  const ageSeconds = nowSeconds - timestampSeconds
  if (ageSeconds > toleranceSeconds) return { ok: false, cause: 'timestamp_too_old', timestampSeconds }
  if (ageSeconds < -toleranceSeconds) return { ok: false, cause: 'timestamp_in_future', timestampSeconds }
  return { ok: true, keyName, timestampSeconds }
}

type Signature = { keyName: string | undefined; timestampSeconds: number; nowSeconds: number }

/**
 * Parses exactly one `t` of 1 to 12 ASCII digits and 1 to 8 `v1` of 64 hex digits. Ignores other schemes. Keeps `t` as
 * text, because the signature covers its exact form.
 */
function parseHeader(header: string): { t: string; candidates: Buffer[] } | undefined {
  // One character is one byte, because Node decodes headers as Latin-1.
  if (header.length > maxHeaderBytes) return undefined
  let t: string | undefined
  const candidates: Buffer[] = []
  for (const element of header.split(',')) {
    const at = element.indexOf('=')
    if (at < 1) return undefined
    const scheme = element.slice(0, at)
    const value = element.slice(at + 1)
    if (scheme === 't') {
      if (t !== undefined || !timestampPattern.test(value)) return undefined
      t = value
    } else if (scheme === 'v1') {
      if (candidates.length === maxCandidates || !digestPattern.test(value)) return undefined
      candidates.push(Buffer.from(value, 'hex'))
    }
  }
  return t === undefined || candidates.length === 0 ? undefined : { t, candidates }
}
