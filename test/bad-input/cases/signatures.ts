/**
 * Values of X-Service-Signature and their results.
 *
 * `{t}` is the signing time in Unix seconds, `{v1}` its digest, `{wrong}` an unrelated digest. A list repeats the header,
 * null omits it. `reason` is recorded in the arrival log and never sent. Every refusal is answered 401
 * `invalid_signature`, and invalid HTTP 400 `bad_request`.
 */
export type SignatureCase = {
  name: string
  header: string | string[] | null
  reason:
    | 'accepted'
    | 'missing_header'
    | 'malformed_header'
    | 'no_matching_secret'
    | 'timestamp_too_old'
    | 'timestamp_in_future'
    | 'no_http'
  /** How many seconds the clock of the signer is ahead of ours. */
  skew?: number
  /** The key that signed. Default: `live`. */
  by?: 'live' | 'sandbox' | 'retired' | 'stranger'
  /** The bytes that were signed where they are not those that are sent. */
  over?: 'another body' | 'another time' | 'the body alone' | 'the body with a line break'
  /** `t` as it was signed and written, where it is not the plain number. */
  written?: string
}

const padded = (bytes: number, filler = 'x') => {
  const start = 't={t},v1={v1},v0='
  // The placeholders stand for 10 and for 64 characters.
  return start + filler.repeat(bytes - start.length - 10 - 64 + '{t}{v1}'.length)
}

export const signatures: SignatureCase[] = [
  { name: 'as the spec writes it', header: 't={t},v1={v1}', reason: 'accepted' },
  { name: 'any order', header: 'v1={v1},t={t}', reason: 'accepted' },
  { name: 'upper-case hex', header: 't={t},v1={V1}', reason: 'accepted' },
  { name: 'blanks round the whole value', header: '  \t t={t},v1={v1} \t ', reason: 'accepted' },
  { name: 'eight v1, the valid one last', header: `t={t}${',v1={wrong}'.repeat(7)},v1={v1}`, reason: 'accepted' },
  { name: 'eight v1, the valid one first', header: `t={t},v1={v1}${',v1={wrong}'.repeat(7)}`, reason: 'accepted' },
  { name: 'the same v1 twice', header: 't={t},v1={v1},v1={v1}', reason: 'accepted' },
  { name: 'unknown schemes', header: 't={t},v0={wrong},v2=x,v1={v1},ed25519=a=b,T=1,V1=zz', reason: 'accepted' },
  { name: 'an unknown scheme without a value', header: 't={t},v0=,v1={v1}', reason: 'accepted' },
  { name: 'a t behind a blank, which is another scheme', header: 't={t},v1={v1}, t=0', reason: 'accepted' },
  { name: 'an unknown scheme of a prototype', header: '__proto__=t,constructor=v1,t={t},v1={v1}', reason: 'accepted' },
  { name: 'exactly 1 KiB', header: padded(1024), reason: 'accepted' },
  { name: 'exactly 1 KiB, of bytes that are no ASCII', header: padded(1024, '\u00e9'), reason: 'accepted' },
  { name: 't with a leading zero, signed so', header: 't={t},v1={v1}', written: '0{t}', reason: 'accepted' },
  { name: 't of twelve digits, signed so', header: 't={t},v1={v1}', written: '00{t}', reason: 'accepted' },
  { name: 'the second key', header: 't={t},v1={v1}', by: 'sandbox', reason: 'accepted' },
  { name: 'a retired key', header: 't={t},v1={v1}', by: 'retired', reason: 'accepted' },
  { name: '299 s old', header: 't={t},v1={v1}', skew: -299, reason: 'accepted' },
  { name: '300 s old', header: 't={t},v1={v1}', skew: -300, reason: 'accepted' },
  { name: '300 s ahead', header: 't={t},v1={v1}', skew: 300, reason: 'accepted' },

  { name: '301 s old', header: 't={t},v1={v1}', skew: -301, reason: 'timestamp_too_old' },
  { name: 'a day old', header: 't={t},v1={v1}', skew: -86_400, reason: 'timestamp_too_old' },
  { name: 'of 1970', header: 't={t},v1={v1}', written: '0', reason: 'timestamp_too_old' },
  { name: '301 s ahead', header: 't={t},v1={v1}', skew: 301, reason: 'timestamp_in_future' },
  {
    name: 'in milliseconds, of twelve digits',
    header: 't={t},v1={v1}',
    written: '999999999999',
    reason: 'timestamp_in_future',
  },

  { name: 'another secret', header: 't={t},v1={v1}', by: 'stranger', reason: 'no_matching_secret' },
  {
    name: 'another secret, and old',
    header: 't={t},v1={v1}',
    by: 'stranger',
    skew: -9000,
    reason: 'no_matching_secret',
  },
  { name: 'another body', header: 't={t},v1={v1}', over: 'another body', reason: 'no_matching_secret' },
  { name: 'another time', header: 't={t},v1={v1}', over: 'another time', reason: 'no_matching_secret' },
  { name: 'the body without the time', header: 't={t},v1={v1}', over: 'the body alone', reason: 'no_matching_secret' },
  {
    name: 'a line break after the body',
    header: 't={t},v1={v1}',
    over: 'the body with a line break',
    reason: 'no_matching_secret',
  },
  { name: 't with a zero that was not signed', header: 't=0{t},v1={v1}', reason: 'no_matching_secret' },
  { name: 'zeros', header: 't={t},v1={wrong}', reason: 'no_matching_secret' },
  { name: 'eight wrong ones', header: `t={t}${',v1={wrong}'.repeat(8)}`, reason: 'no_matching_secret' },
  { name: 'the valid one under another scheme', header: 't={t},v0={v1},v1={wrong}', reason: 'no_matching_secret' },

  { name: 'no header', header: null, reason: 'missing_header' },
  { name: 'nothing in it', header: '', reason: 'malformed_header' },
  { name: 'blanks', header: '   ', reason: 'malformed_header' },
  { name: 'the header twice', header: ['t={t},v1={v1}', 't={t},v1={v1}'], reason: 'malformed_header' },
  { name: 'the header twice, the first empty', header: ['', 't={t},v1={v1}'], reason: 'malformed_header' },
  { name: 'the header cut in two', header: ['t={t}', 'v1={v1}'], reason: 'malformed_header' },
  {
    name: 'two headers joined on the way, and a third t',
    header: 't={t},v1={v1}, t={t},v1={v1},t={t}',
    reason: 'malformed_header',
  },
  { name: 'no t', header: 'v1={v1}', reason: 'malformed_header' },
  { name: 'an empty t', header: 't=,v1={v1}', reason: 'malformed_header' },
  { name: 'two t', header: 't={t},t={t},v1={v1}', reason: 'malformed_header' },
  { name: 't of 13 digits', header: 't=000{t},v1={v1}', reason: 'malformed_header' },
  { name: 'a negative t', header: 't=-{t},v1={v1}', reason: 'malformed_header' },
  { name: 't with a plus', header: 't=+{t},v1={v1}', reason: 'malformed_header' },
  { name: 't with a fraction', header: 't={t}.0,v1={v1}', reason: 'malformed_header' },
  { name: 't as an exponent', header: 't=1e9,v1={v1}', reason: 'malformed_header' },
  { name: 't in hex', header: 't=0x10,v1={v1}', reason: 'malformed_header' },
  { name: 't with a separator', header: 't=1_000_000,v1={v1}', reason: 'malformed_header' },
  { name: 't as a date', header: 't=2026-01-01T00:00:00Z,v1={v1}', reason: 'malformed_header' },
  { name: 't in words', header: 't=NaN,v1={v1}', reason: 'malformed_header' },
  { name: 't with a blank before it', header: 't= {t},v1={v1}', reason: 'malformed_header' },
  { name: 't with a blank after it', header: 't={t} ,v1={v1}', reason: 'malformed_header' },
  { name: 't with a tab', header: 't=\t{t},v1={v1}', reason: 'malformed_header' },
  { name: 't in quotes', header: 't="{t}",v1={v1}', reason: 'malformed_header' },
  { name: 't in Arabic digits, in UTF-8', header: 't=\u00d9\u00a1\u00d9\u00a7,v1={v1}', reason: 'malformed_header' },
  { name: 'superscript digits', header: 't=\u00b9\u00b2\u00b3,v1={v1}', reason: 'malformed_header' },
  { name: 'no v1', header: 't={t}', reason: 'malformed_header' },
  { name: 'only another scheme', header: 't={t},v0={v1}', reason: 'malformed_header' },
  { name: 'the scheme in upper case', header: 't={t},V1={v1}', reason: 'malformed_header' },
  { name: 'a blank before the scheme', header: 't={t}, v1={v1}', reason: 'malformed_header' },
  { name: 'an empty v1', header: 't={t},v1=', reason: 'malformed_header' },
  { name: 'v1 of 63 digits', header: 't={t},v1={63}', reason: 'malformed_header' },
  { name: 'v1 of 65 digits', header: 't={t},v1={v1}0', reason: 'malformed_header' },
  { name: 'v1 with one digit that is not hex', header: 't={t},v1={63}g', reason: 'malformed_header' },
  { name: 'v1 with 0x', header: 't={t},v1=0x{v1}', reason: 'malformed_header' },
  { name: 'v1 in base64', header: 't={t},v1={base64}', reason: 'malformed_header' },
  { name: 'v1 in quotes', header: 't={t},v1="{v1}"', reason: 'malformed_header' },
  { name: 'one bad v1 beside a valid one', header: 't={t},v1={v1},v1=nonsense', reason: 'malformed_header' },
  { name: 'nine v1', header: `t={t},v1={v1}${',v1={wrong}'.repeat(8)}`, reason: 'malformed_header' },
  { name: 'semicolons', header: 't={t};v1={v1}', reason: 'malformed_header' },
  { name: 'an element without a scheme', header: 't={t},=x,v1={v1}', reason: 'malformed_header' },
  { name: 'an element without a value', header: 't={t},v0,v1={v1}', reason: 'malformed_header' },
  { name: 'an empty element', header: 't={t},,v1={v1}', reason: 'malformed_header' },
  { name: 'a comma at the end', header: 't={t},v1={v1},', reason: 'malformed_header' },
  { name: 'the digest alone', header: '{v1}', reason: 'malformed_header' },
  { name: 'as another company writes it', header: 'sha256={v1}', reason: 'malformed_header' },
  { name: 'JSON', header: '{"t":{t},"v1":"{v1}"}', reason: 'malformed_header' },
  { name: '1 KiB and one byte', header: padded(1025), reason: 'malformed_header' },
  {
    name: '1 KiB and one byte, of bytes that are no ASCII',
    header: padded(1025, '\u00e9'),
    reason: 'malformed_header',
  },
  { name: '12 KiB of commas', header: ','.repeat(12_288), reason: 'malformed_header' },

  { name: 'a line break in it', header: 't={t},\r\n v1={v1}', reason: 'no_http' },
  { name: 'a line feed in it', header: 't={t}\n,v1={v1}', reason: 'no_http' },
  { name: 'NUL in it', header: 't={t},v1={v1}\0', reason: 'no_http' },
  { name: 'a control character in it', header: 't={t},v1={v1}\u0001', reason: 'no_http' },
  { name: 'DEL in it', header: 't={t},v1={v1}\u007f', reason: 'no_http' },
]
