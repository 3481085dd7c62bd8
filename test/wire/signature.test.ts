import crypto from 'node:crypto'
import { syncBuiltinESMExports } from 'node:module'
import fc from 'fast-check'
import { describe, expect, it, onTestFinished } from 'vitest'
import { sign, toleranceSeconds, type Secret } from '../../src/wire/signature.ts'
import { long } from '../chaos/length.ts'
import { verify } from '../support/verify.ts'

const signingSecret = 'whsec_golden_0123456789'
const t = 1767225600
const secrets: Secret[] = [{ name: 'golden', signingSecret }]
const body = Buffer.from(
  '{"request_id":"0b6f7a52-93a7-4b53-8f0e-3d7a2b1c9e44","status":"ERROR","error":{"code":"GENERATION_FAILED","message":"no"}}',
)
const digest = '21528949ca42963228d7a360f67dfabac3d7445351782710680b2a505f2437dc'
const valid = { ok: true, keyName: 'golden', timestampSeconds: t }

/** Computed once by `(printf '<t>.'; cat body) | openssl dgst -sha256 -hmac <secret>`, never by the code under test. */
const golden: [string, Buffer, string][] = [
  ['empty', Buffer.alloc(0), 'ca2eaeb359b11f015531904ce00cb0634813c6669f86a607dc8a5a2044d5d6fb'],
  ['ASCII', body, digest],
  ['UTF-8', Buffer.from('{"note":"café, 雪, 🌊"}'), '73b2690e2d197fa4e743be0293a0051dd275ff359a883c6dead6da94c569d336'],
  [
    'bytes that are no UTF-8',
    Buffer.from('00fffec328eda080', 'hex'),
    '4db70a1dcdf1ff53196144d037170aa150e11e37cc14f04359e4583b5e9bc60b',
  ],
  [
    '1 MiB',
    Buffer.from(Uint8Array.from({ length: 1 << 20 }, (_, at) => at * 7)),
    '1633521e48beae19745d1fe14d30385ee6c5e04d6ab8af3ad239360e6b1906e8',
  ],
]

describe('golden vectors', () => {
  it.each(golden)('sign: %s', (_what, bytes, hex) => {
    expect(sign(bytes, signingSecret, t)).toBe(`t=1767225600,v1=${hex}`)
  })

  it.each(golden)('verify: %s', (_what, bytes, hex) => {
    expect(verify(bytes, `t=1767225600,v1=${hex}`, secrets, t)).toEqual(valid)
  })

  it('a secret is its UTF-8 bytes', () => {
    const unicode = 'sécret ☂'
    const header = 't=1767225600,v1=d03e8fb25dc3372441c5379824e3d476f648ba44fac024f869032e8d88ce814f'
    expect(sign(Buffer.from('x'), unicode, t)).toBe(header)
    expect(verify(Buffer.from('x'), header, [{ name: 'unicode', signingSecret: unicode }], t)).toMatchObject({
      ok: true,
      keyName: 'unicode',
    })
  })

  it.each([
    ['0', 0, 'e4ed60bd2f216d875d011d3502b2b432d1711d684c1c4481cf75b0a1a0c9b6dc'],
    ['007', 7, 'de24004c9d7e8ca59c12fb20a32ad94b93a7bc4b708c2477589224ea3ffeecdf'],
    ['999999999999', 999_999_999_999, 'bfb009ccffa2011704127c7c5842b7e592540d719e5a05f70ebf1a5d36ffa9dc'],
  ])('t=%s is signed as written', (written, seconds, hex) => {
    expect(verify(Buffer.from('{}'), `t=${written},v1=${hex}`, secrets, seconds)).toEqual({
      ...valid,
      timestampSeconds: seconds,
    })
  })
})

// All that HTTP can bring is in test/bad-input/cases/signatures.ts.
describe('the header', () => {
  it.each([
    ['t with a line break', `t=${t}\n,v1=${digest}`],
    ['v1 with a line break', `t=${t},v1=${digest}\n`],
    ['t in Arabic digits', `t=١٧٦٧٢٢٥٦٠٠,v1=${digest}`],
    ['v1 with a digit in full width', `t=${t},v1=${digest.slice(1)}１`],
  ])('is malformed: %s', (_what, header) => {
    expect(verify(body, header, secrets, t)).toEqual({
      ok: false,
      cause: 'malformed_header',
      timestampSeconds: undefined,
    })
  })

  it('verify never throws', () => {
    const piece = fc.oneof(
      fc.constantFrom('t=', 'v1=', ',', '=', String(t), digest, '\0'),
      fc.string({ unit: 'binary' }),
    )
    fc.assert(
      fc.property(fc.array(piece), (pieces) => {
        const verification = verify(Buffer.from('another body'), pieces.join(''), secrets, t)
        expect(verification.ok).toBe(false)
      }),
      { numRuns: long ? 100_000 : 500 },
    )
  })
})

describe('the window', () => {
  it.each([0, 1, 299, 300])('accepts a timestamp %i s old or ahead', (seconds) => {
    const header = sign(body, signingSecret, t)
    expect(verify(body, header, secrets, t + seconds)).toEqual(valid)
    expect(verify(body, header, secrets, t - seconds)).toEqual(valid)
  })

  it.each([301, 302, 86_400, 1_700_000_000])('refuses a timestamp %i s old or ahead', (seconds) => {
    const header = sign(body, signingSecret, t)
    expect(verify(body, header, secrets, t + seconds)).toEqual({
      ok: false,
      cause: 'timestamp_too_old',
      timestampSeconds: t,
    })
    expect(verify(body, header, secrets, t - seconds)).toEqual({
      ok: false,
      cause: 'timestamp_in_future',
      timestampSeconds: t,
    })
  })

  it('is the five minutes of the spec', () => expect(toleranceSeconds).toBe(300))

  it('is checked only for a sender with a valid secret', () => {
    expect(verify(body, sign(body, 'whsec_other', t - 9000), secrets, t)).toMatchObject({
      ok: false,
      cause: 'no_matching_secret',
    })
  })
})

describe('several secrets', () => {
  const many: Secret[] = [
    { name: 'old', signingSecret: 'whsec_old' },
    ...secrets,
    { name: 'new', signingSecret: 'whsec_new' },
  ]

  it.each(many)(
    'are all valid, and the name of the matching one is returned: $name',
    ({ name, signingSecret: used }) => {
      expect(verify(body, sign(body, used, t), many, t)).toEqual({ ok: true, keyName: name, timestampSeconds: t })
    },
  )

  it('of which two match: the first', () => {
    const twice = [...secrets, { name: 'again', signingSecret }]
    expect(verify(body, sign(body, signingSecret, t), twice, t)).toMatchObject({ keyName: 'golden' })
  })

  it('of which none matches, or an empty list: refused', () => {
    const header = sign(body, 'whsec_stranger', t)
    for (const known of [many, []])
      expect(verify(body, header, known, t)).toEqual({ ok: false, cause: 'no_matching_secret', timestampSeconds: t })
  })
})

// test/chaos/constant-time.test.ts compares the times.
describe('comparing', () => {
  /** The comparisons in constant time that are made from now on, with the code as it is. */
  function watchComparisons(): [NodeJS.ArrayBufferView, NodeJS.ArrayBufferView][] {
    const { timingSafeEqual } = crypto
    const seen: [NodeJS.ArrayBufferView, NodeJS.ArrayBufferView][] = []
    crypto.timingSafeEqual = (a, b) => {
      seen.push([a, b])
      return timingSafeEqual(a, b)
    }
    syncBuiltinESMExports()
    onTestFinished(() => {
      crypto.timingSafeEqual = timingSafeEqual
      syncBuiltinESMExports()
    })
    return seen
  }
  const many: Secret[] = ['a', 'b', 'c'].map((name) => ({ name, signingSecret: `whsec_${name}` }))
  const foreign = '0'.repeat(64)

  it.each([
    ['the first secret matches', 'whsec_a', 'v1=<right>,v1=<foreign>'],
    ['the last secret matches, in the last of the candidates', 'whsec_c', 'v1=<foreign>,v1=<right>'],
    ['nothing matches', 'whsec_stranger', 'v1=<right>,v1=<foreign>'],
  ])('is done in constant time with every secret and every candidate: %s', (_what, used, candidates) => {
    const seen = watchComparisons()
    const right = sign(body, used, t).slice(-64)
    verify(body, `t=${t},${candidates.replace('<right>', right).replace('<foreign>', foreign)}`, many, t)
    const hex = (bytes: NodeJS.ArrayBufferView) =>
      Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex')
    const digests = many.map((secret) => sign(body, secret.signingSecret, t).slice(-64))
    const given = candidates.includes('v1=<foreign>,') ? [foreign, right] : [right, foreign]
    expect(seen.map(([expected, candidate]) => [hex(expected), hex(candidate)])).toEqual(
      digests.flatMap((expected) => given.map((candidate) => [expected, candidate])),
    )
  })
})

describe('tampering', () => {
  it('with any one bit of the body, of t or of the digest is refused', () => {
    const flip = (bytes: Buffer, bit: number) => {
      const flipped = Buffer.from(bytes)
      const at = bit >> 3
      flipped.writeUInt8(flipped.readUInt8(at) ^ (1 << (bit & 7)), at)
      return flipped
    }
    const positions = { body: fc.nat(), digest: fc.nat({ max: 255 }) }
    fc.assert(
      fc.property(
        fc.uint8Array({ minLength: 1, maxLength: 4096 }),
        fc.record(positions),
        fc.integer({ min: 1, max: 300 }),
        (bytes, at, seconds) => {
          const signed = Buffer.from(bytes)
          const header = sign(signed, signingSecret, t)
          const hex = header.slice(-64)
          expect(verify(signed, header, secrets, t).ok).toBe(true)
          expect(verify(flip(signed, at.body % (signed.length * 8)), header, secrets, t).ok).toBe(false)
          expect(
            verify(signed, `t=${t},v1=${flip(Buffer.from(hex, 'hex'), at.digest).toString('hex')}`, secrets, t).ok,
          ).toBe(false)
          expect(verify(signed, `t=${t + seconds},v1=${hex}`, secrets, t).ok).toBe(false)
        },
      ),
      { numRuns: 500 },
    )
  })

  it('by moving a byte between t and the body is refused', () => {
    const moved = Buffer.concat([Buffer.from('9'), body])
    expect(
      verify(moved, sign(body, signingSecret, 17672256009).replace('17672256009', '1767225600'), secrets, t).ok,
    ).toBe(false)
  })

  it('by adding or cutting bytes is refused', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 256 }), fc.uint8Array({ minLength: 1, maxLength: 8 }), (bytes, more) => {
        const longer = Buffer.concat([bytes, more])
        expect(verify(longer, sign(bytes, signingSecret, t), secrets, t).ok).toBe(false)
        expect(verify(bytes, sign(longer, signingSecret, t), secrets, t).ok).toBe(false)
      }),
    )
  })
})
