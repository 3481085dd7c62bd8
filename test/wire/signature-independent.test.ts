import fc from 'fast-check'
import Stripe from 'stripe'
import { describe, expect, it } from 'vitest'
import { sign } from '../../src/wire/signature.ts'
import { verify } from '../support/verify.ts'

/**
 * Against two implementations that share no line with ours. `stripe` signs and
 * verifies this very scheme, but over text: it decodes the bytes that it is
 * given, so a byte-order mark and bytes that are no UTF-8 do not survive in it.
 * Its text is therefore checked with `stripe`, and any bytes with Web Crypto.
 */

const { webhooks } = Stripe
const theirs = webhooks.signature ?? expect.fail('stripe has no signature helper')
const nowSeconds = 1_767_225_600
// No blanks at the ends of it: stripe takes a secret of blanks for none.
const secretText = fc
  .string({ unit: 'grapheme', minLength: 1, maxLength: 64 })
  .filter((text) => text.trim() === text && text.isWellFormed())
const bodyText = fc
  .oneof(fc.string({ unit: 'binary', minLength: 1, maxLength: 2000 }), fc.json())
  .filter((text) => text.isWellFormed())
const time = fc.integer({ min: nowSeconds - 300, max: nowSeconds + 300 })

describe('stripe', () => {
  it('verifies what we sign', () => {
    fc.assert(
      fc.property(bodyText, secretText, time, (text, secret, t) => {
        const header = sign(Buffer.from(text), secret, t)
        expect(theirs.verifyHeader(text, header, secret, 300, undefined, nowSeconds * 1000)).toBe(true)
      }),
      { numRuns: 500 },
    )
  })

  it('signs what we verify', () => {
    fc.assert(
      fc.property(bodyText, secretText, time, (payload, secret, timestamp) => {
        const header = webhooks.generateTestHeaderString({ payload, secret, timestamp })
        expect(
          verify(Buffer.from(payload), header, [{ name: 'stripe', signingSecret: secret }], nowSeconds),
        ).toMatchObject({ ok: true })
      }),
      { numRuns: 500 },
    )
  })

  it('refuses what we refuse: another body, another secret', () => {
    fc.assert(
      fc.property(bodyText, bodyText, secretText, (text, other, secret) => {
        fc.pre(text !== other)
        const ours = sign(Buffer.from(text), secret, nowSeconds)
        const stripes = webhooks.generateTestHeaderString({ payload: text, secret, timestamp: nowSeconds })
        for (const header of [ours, stripes]) {
          expect(() => theirs.verifyHeader(other, header, secret, 300, undefined, nowSeconds * 1000)).toThrow()
          expect(() => theirs.verifyHeader(text, header, `${secret}x`, 300, undefined, nowSeconds * 1000)).toThrow()
          expect(verify(Buffer.from(other), header, [{ name: 'a', signingSecret: secret }], nowSeconds).ok).toBe(false)
          expect(verify(Buffer.from(text), header, [{ name: 'a', signingSecret: `${secret}x` }], nowSeconds).ok).toBe(
            false,
          )
        }
      }),
    )
  })

  it('agrees on the old end of the window', () => {
    for (const [ageSeconds, valid] of [
      [300, true],
      [301, false],
    ] as const) {
      const header = webhooks.generateTestHeaderString({
        payload: '{}',
        secret: 's',
        timestamp: nowSeconds - ageSeconds,
      })
      const judge = () => theirs.verifyHeader('{}', header, 's', 300, undefined, nowSeconds * 1000)
      if (valid) expect(judge()).toBe(true)
      else expect(judge).toThrow(/tolerance/)
      expect(verify(Buffer.from('{}'), header, [{ name: 'a', signingSecret: 's' }], nowSeconds).ok).toBe(valid)
    }
  })
})

describe('Web Crypto', () => {
  const bytes = fc.oneof(
    fc.uint8Array({ maxLength: 4096 }),
    fc.constantFrom(
      Buffer.from([0xef, 0xbb, 0xbf, 0x7b, 0x7d]),
      Buffer.from([0xff, 0xfe]),
      Buffer.from([0xed, 0xa0, 0x80]),
      Buffer.alloc(0),
    ),
  )

  it('computes the same digest of any bytes, including non-UTF-8', async () => {
    await fc.assert(
      fc.asyncProperty(bytes, secretText, time, async (body, secret, t) => {
        const key = await crypto.subtle.importKey(
          'raw',
          new TextEncoder().encode(secret),
          { name: 'HMAC', hash: 'SHA-256' },
          false,
          ['sign'],
        )
        const signed = new Uint8Array([...new TextEncoder().encode(`${t}.`), ...body])
        const hex = Array.from(new Uint8Array(await crypto.subtle.sign('HMAC', key, signed)), (byte) =>
          byte.toString(16).padStart(2, '0'),
        ).join('')
        expect(sign(body, secret, t)).toBe(`t=${t},v1=${hex}`)
        expect(verify(body, `t=${t},v1=${hex}`, [{ name: 'subtle', signingSecret: secret }], nowSeconds)).toMatchObject(
          { ok: true },
        )
      }),
      { numRuns: 500 },
    )
  })
})
