import { createHmac } from 'node:crypto'
import OpenAI from 'openai'
import { describe, expect, test } from 'vitest'
import { atOnce } from '../../../src/receiver/domain/source.ts'
import { identify, secrets, verify } from '../../../src/receiver/sources/standard-webhooks.ts'
import { hmacKeyOf, signStandardWebhook } from '../../../src/wire/standard-webhooks.ts'

// Vectors that the projects publish in their own tests: libraries/javascript and libraries/rust of
// standard-webhooks/standard-webhooks, and openai/openai-node.
const javascript = {
  secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
  id: 'msg_p5jXN8AQM9LWM0D4loKWxJek',
  timestamp: '1614265330',
  body: Buffer.from('{"test": 2432232314}'),
  signature: 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
}
const rust = {
  secret: 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD',
  id: 'msg_27UH4WbU6Z5A5EzD8u03UvzRbpk',
  timestamp: '1649367553',
  body: Buffer.from('{"email":"test@example.com","username":"test_user"}'),
  signature: 'v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=',
}
const openai = {
  secret: 'whsec_RdvaYFYUXuIFuEbvZHwMfYFhUf7aMYjYcmM24+Aj40c=',
  id: 'wh_685c059ae39c8190af8c71ed1022a24d',
  timestamp: '1750861210',
  body: Buffer.from(
    '{"id": "evt_685c059ae3a481909bdc86819b066fb6", "object": "event", "created_at": 1750861210, ' +
      '"type": "response.completed", "data": {"id": "resp_123"}}',
  ),
  signature: 'v1,gUAg4R2hWouRZqRQG4uJypNS8YK885G838+EHb4nKBY=',
}
type Sent = typeof javascript

const headersOf = ({ id, timestamp, signature }: Sent): Record<string, string[]> => ({
  'webhook-id': [id],
  'webhook-timestamp': [timestamp],
  'webhook-signature': [signature],
})

function verified(sent: Sent, { late = 0, headers = {} }: { late?: number; headers?: Record<string, string[]> } = {}) {
  const all = { ...headersOf(sent), ...headers }
  const secrets = [
    { name: 'other', signingSecret: `whsec_${Buffer.alloc(24, 7).toString('base64')}` },
    { name: 'mine', signingSecret: sent.secret },
  ]
  return atOnce(verify({ header: (name) => all[name] ?? [], body: sent.body }, secrets, Number(sent.timestamp) + late))
}

describe('Standard Webhooks v1', () => {
  test("OpenAI's client accepts and refuses the same deliveries", async () => {
    const { webhooks } = new OpenAI({ apiKey: 'unused', webhookSecret: openai.secret })
    const accepts = (sent: Sent) =>
      webhooks
        .verifySignature(
          sent.body.toString(),
          new Headers(Object.entries(headersOf(sent)).map(([name, values]) => [name, values.join()])),
        )
        .then(
          () => true,
          () => false,
        )
    const timestampSeconds = Math.floor(Date.now() / 1000)
    const { 'webhook-signature': signature = expect.fail() } = signStandardWebhook(openai.body, {
      ...openai,
      timestampSeconds,
    })
    const genuine = { ...openai, timestamp: String(timestampSeconds), signature }
    const stale = `v1,${Buffer.alloc(32).toString('base64')}`
    const cases: [Sent, boolean][] = [
      [genuine, true],
      [{ ...genuine, signature: `${stale} ${signature}` }, true],
      [{ ...genuine, signature: stale }, false],
      [{ ...genuine, body: Buffer.from(`${openai.body.toString()} `) }, false],
      [{ ...genuine, id: 'wh_other' }, false],
      [{ ...genuine, timestamp: String(timestampSeconds - 1) }, false],
    ]
    for (const [sent, accepted] of cases) expect([verified(sent).ok, await accepts(sent)]).toEqual([accepted, accepted])
  })

  test.each([javascript, rust, openai])('accepts the published vector $id', (sent) => {
    expect(verified(sent)).toEqual({ ok: true, keyName: 'mine', timestampSeconds: Number(sent.timestamp) })
  })

  test.each([
    [300, true],
    [301, 'timestamp_too_old'],
    [-300, true],
    [-301, 'timestamp_in_future'],
  ])('a delivery read %i s after its timestamp: %s', (late, expected) => {
    const result = verified(javascript, { late })
    expect(result.ok || result.cause).toBe(expected)
  })

  test('accepts any one of several signatures and ignores other schemes', () => {
    const stale = `v1,${Buffer.alloc(32).toString('base64')}`
    const signature = `v1a,AAAA ${stale} ${javascript.signature}`
    expect(verified({ ...javascript, signature })).toMatchObject({ ok: true })
  })

  test('verifies bytes that are not UTF-8, and bodies of more than one step', () => {
    const body = Buffer.alloc(200_000, 0xff)
    const hmac = createHmac('sha256', Buffer.from(rust.secret.slice(6), 'base64'))
    const digest = hmac.update(`${rust.id}.${rust.timestamp}.`).update(body).digest('base64')
    expect(verified({ ...rust, body, signature: `v1,${digest}` })).toMatchObject({ ok: true })
  })

  test.each(['v1,AAAA', 'v1a,AAAA', 'v2,abc'])('skips %s beside a signature that matches', (other) => {
    const { signature } = javascript
    for (const both of [`${other} ${signature}`, `${signature} ${other}`])
      expect(verified({ ...javascript, signature: both })).toMatchObject({ ok: true })
  })

  test.each([
    ['a changed body', { body: Buffer.from('{"test": 2432232315}') }, 'no_matching_secret'],
    ['another id', { id: 'msg_other' }, 'no_matching_secret'],
    ['another scheme', { signature: javascript.signature.replace('v1', 'v2') }, 'malformed_header'],
    ['a bare signature', { signature: javascript.signature.slice(3) }, 'malformed_header'],
    ['an unpadded signature', { signature: javascript.signature.slice(0, -1) }, 'malformed_header'],
    ['nine signatures', { signature: Array(9).fill(javascript.signature).join(' ') }, 'malformed_header'],
    ['a timestamp with a suffix', { timestamp: '1614265330x' }, 'malformed_header'],
  ])('refuses %s', (_, change, cause) => {
    expect(verified({ ...javascript, ...change })).toMatchObject({ ok: false, cause })
  })

  test('refuses an id that moves the border between id, timestamp and body', () => {
    const body = Buffer.from('2.x')
    const hmac = createHmac('sha256', Buffer.from(rust.secret.slice(6), 'base64'))
    const signature = `v1,${hmac.update('a.1.').update(body).digest('base64')}`
    expect(verified({ ...rust, id: 'a', timestamp: '1', body, signature })).toMatchObject({ ok: true })
    const moved = { ...rust, id: 'a.1', timestamp: '2', body: Buffer.from('x'), signature }
    expect(verified(moved)).toMatchObject({ ok: false, cause: 'malformed_header' })
    expect(identify({ header: () => ['a.1'] })).toMatchObject({ ok: false, stated: 'a.1' })
  })

  test.each(['webhook-id', 'webhook-timestamp', 'webhook-signature'])('needs %s exactly once', (name) => {
    const [value = ''] = headersOf(javascript)[name] ?? []
    expect(verified(javascript, { headers: { [name]: [] } })).toMatchObject({ cause: 'missing_header' })
    expect(verified(javascript, { headers: { [name]: [value, value] } })).toMatchObject({ cause: 'malformed_header' })
  })

  test.each([
    'whsec_',
    '',
    'whsec_AAAA',
    'MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
    'whsec_not base64 of 24 bytes or more ===',
  ])('takes no key from the secret %j, so that nothing can be signed with it', (secret) => {
    expect(hmacKeyOf(secret)).toBeUndefined()
    const digest = createHmac('sha256', Buffer.from(secret.replace('whsec_', ''), 'base64'))
    const { id, timestamp, body } = javascript
    const signature = `v1,${digest.update(`${id}.${timestamp}.`).update(body).digest('base64')}`
    expect(verified({ ...javascript, secret, signature })).toMatchObject({ cause: 'no_matching_secret' })
  })
})

describe('Standard Webhooks v1a', () => {
  // The projects publish no vector. This one has the key of RFC 8032, 7.1, test 1.
  const secret = 'whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo='
  const signature = 'v1a,fldxM4gAKugP6nnt1hdz3sgGfZ6d99nzrMFnZOELIxbzEHoVmAb2ADpkJK7zgPePmPsle0zV9jSeGlHFG2NVAw=='
  const sent = { ...javascript, secret, signature }

  test('accepts the vector with its public key, beside other signatures and late by 300 s', () => {
    const both = { ...sent, signature: `${javascript.signature} ${signature}` }
    for (const one of [sent, both]) expect(verified(one, { late: 300 })).toMatchObject({ ok: true, keyName: 'mine' })
    expect(verified(sent, { late: 301 })).toMatchObject({ cause: 'timestamp_too_old' })
  })

  test.each(['v1,AAAA', 'v1a,AAAA', 'v2,abc'])('skips %s beside a signature that matches', (other) => {
    const { signature } = javascript
    for (const both of [`${other} ${signature}`, `${signature} ${other}`])
      expect(verified({ ...javascript, signature: both })).toMatchObject({ ok: true })
  })

  test.each([
    ['a changed body', { body: Buffer.from('{"test": 2432232315}') }],
    ['another id', { id: 'msg_other' }],
    ['another key', { secret: secret.replace('11', '12') }],
    ['the key of v1', { secret: javascript.secret }],
  ])('refuses %s', (_, change) => {
    expect(verified({ ...sent, ...change })).toMatchObject({ cause: 'no_matching_secret' })
  })

  test('takes public keys of 32 bytes only', () => {
    expect(secrets.keyBytes(secret)).toHaveLength(32)
    expect(secrets.keyBytes(`whpk_${Buffer.alloc(31).toString('base64')}`)).toBeUndefined()
  })
})

test('what we sign has the signature of the vector', () => {
  const { body, id, secret, timestamp, signature } = rust
  const headers = signStandardWebhook(body, { id, secret, timestampSeconds: Number(timestamp) })
  expect(headers).toEqual({ 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signature })
})
