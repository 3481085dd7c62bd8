import { createHash, createPrivateKey, generateKeyPairSync, sign as signBytes } from 'node:crypto'
import type { OutputType, QueueStatus } from '@fal-ai/client'
import { describe, expect, test } from 'vitest'
import { sha256Hex } from '../../../src/receiver/domain/delivery.ts'
import { atOnce } from '../../../src/receiver/domain/source.ts'
import { publicKeysOf } from '../../../src/receiver/sources/fal-signature.ts'
import { fal } from '../../../src/receiver/sources/fal.ts'
import { falKeyOf, falKeySetOf, signFalWebhook } from '../../../src/wire/fal-signature.ts'
import { videoOfPng } from '../../platform/support/crafted-media.ts'
import { dataUri, pngOf } from '../archive/media-stand.ts'
import { apiOf, arrived, deepJson, junk } from './support/calls.ts'

const jobId = '5057fca7-2eb3-468f-b95d-cefe92b0b9d4'
// The body of a real delivery, with a seed above 2^53. The signature is of the key in RFC 8032, 7.1, test 1; libsodium
// accepted it.
const real = {
  body:
    '{"error": null, "gateway_request_id": "5057fca7-2eb3-468f-b95d-cefe92b0b9d4", "payload": {"has_nsfw_concepts": ' +
    '[false], "images": [{"content_type": "image/jpeg", "height": 1024, "url": ' +
    '"https://v3.fal.media/files/lion/O853qAknYZGU8_2QCbJwd.jpeg", "width": 1024}], "prompt": "dog", "seed": ' +
    '17454220438242315174, "timings": {"inference": 2.107286686077714}}, "request_id": ' +
    '"5057fca7-2eb3-468f-b95d-cefe92b0b9d4", "status": "OK"}',
  headers: {
    'x-fal-webhook-request-id': jobId,
    'x-fal-webhook-user-id': 'user_test',
    'x-fal-webhook-timestamp': '1752019770',
    'x-fal-webhook-signature':
      '2c80910f00773dab8e2c3329569efb66d80c235b514b831af0e3a045eaf84575' +
      'a3beee39459cc4f7b7e8c935a8bec4c45061edeb2ba14dc0c6c180fa98fd4e05',
  } as Record<string, string | string[]>,
}
const signedAt = 1_752_019_770
const mine = { name: 'mine', account: 'user_test', signingSecret: '11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo' }

type Change = { body?: string | Buffer; headers?: Record<string, string | string[]>; late?: number }

function verified({ body = real.body, headers = {}, late = 0 }: Change, secrets = [mine]) {
  return atOnce(fal.verify(arrived({ ...real.headers, ...headers }, body), secrets, signedAt + late))
}

describe('the signature', () => {
  test('accepts the vector, also in upper case', () => {
    expect(verified({})).toEqual({ ok: true, keyName: 'mine', timestampSeconds: signedAt })
    const upper = String(real.headers['x-fal-webhook-signature']).toUpperCase()
    expect(verified({ headers: { 'x-fal-webhook-signature': upper } })).toMatchObject({ ok: true })
  })

  test('is the vector where the key of the RFC signs', () => {
    const x = mine.signingSecret
    const d = Buffer.from('9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60', 'hex').toString(
      'base64url',
    )
    const key = createPrivateKey({ format: 'jwk', key: { kty: 'OKP', crv: 'Ed25519', x, d } })
    const signing = { key, requestId: jobId, userId: 'user_test', timestampSeconds: signedAt }
    expect(signFalWebhook(Buffer.from(real.body), signing)).toEqual(real.headers)
    expect(publicKeysOf(falKeySetOf(key))).toEqual([x])
  })

  test('accepts a body of several steps that any of the public keys signed', () => {
    const { privateKey, publicKey } = generateKeyPairSync('ed25519')
    const body = Buffer.alloc(200_000, 0xff)
    const sha256 = createHash('sha256').update(body).digest('hex')
    const message = `${jobId}\nuser_test\n${signedAt}\n${sha256}`
    const signature = signBytes(null, Buffer.from(message), privateKey).toString('hex')
    const x = publicKey.export({ format: 'jwk' }).x ?? expect.fail()
    const keys = publicKeysOf({ keys: [{ x: mine.signingSecret }, { kty: 'OKP', crv: 'Ed25519', x }] }) ?? []
    const secrets = keys.map((signingSecret) => ({ ...mine, signingSecret }))
    expect(verified({ body, headers: { 'x-fal-webhook-signature': signature } }, secrets)).toMatchObject({ ok: true })
  })

  test('covers a body that reads like a pattern of a replacement', () => {
    const key = falKeyOf(Buffer.alloc(32, 1))
    const [secret = ''] = publicKeysOf(falKeySetOf(key)) ?? []
    for (const body of ['{"a":"$& $$ $` $1"}', "$'", '\\n\n'].map((text) => Buffer.from(text))) {
      const headers = signFalWebhook(body, { key, requestId: jobId, userId: 'user_test', timestampSeconds: signedAt })
      const secrets = [{ ...mine, signingSecret: secret }]
      expect(verified({ body, headers }, secrets)).toMatchObject({ ok: true })
      expect(verified({ body: Buffer.concat([body, body]), headers }, secrets)).toMatchObject({ ok: false })
    }
  })

  test.each<[string, Change]>([
    ['a changed body', { body: `${real.body} ` }],
    ['the webhook of another job', { headers: { 'x-fal-webhook-request-id': 'other' } }],
    ['another time', { headers: { 'x-fal-webhook-timestamp': String(signedAt + 1) } }],
    ['another signature', { headers: { 'x-fal-webhook-signature': '0'.repeat(128) } }],
    ['another account', { headers: { 'x-fal-webhook-user-id': 'user_other' } }],
  ])('refuses %s', (_, change) => {
    expect(verified(change)).toMatchObject({ ok: false, cause: 'no_matching_secret' })
  })

  test('refuses the genuine webhook of another account', () => {
    expect(verified({}, [{ ...mine, account: 'user_other' }])).toMatchObject({ cause: 'no_matching_secret' })
  })

  test.each([
    [300, true],
    [301, 'timestamp_too_old'],
    [-300, true],
    [-301, 'timestamp_in_future'],
  ])('a webhook read %i s after its timestamp: %s', (late, expected) => {
    const result = verified({ late })
    expect(result.ok || result.cause).toBe(expected)
  })

  test.each(Object.entries(real.headers))('needs %s exactly once', (name, value) => {
    expect(verified({ headers: { [name]: [] } })).toMatchObject({ cause: 'missing_header' })
    expect(verified({ headers: { [name]: [value, value].flat() } })).toMatchObject({ cause: 'malformed_header' })
  })

  test.each<[string, string]>([
    ['x-fal-webhook-signature', 'f'.repeat(126)],
    ['x-fal-webhook-signature', 'g'.repeat(128)],
    ['x-fal-webhook-timestamp', `${signedAt}x`],
    ['x-fal-webhook-timestamp', '-1'],
    ['x-fal-webhook-request-id', 'a b'],
  ])('refuses %s: %s', (name, value) => {
    expect(verified({ headers: { [name]: value } })).toMatchObject({ cause: 'malformed_header' })
  })

  test.each(['', 'x', 'A'.repeat(44)])('takes no key from %j', (signingSecret) => {
    expect(verified({}, [{ ...mine, signingSecret }])).toMatchObject({ cause: 'no_matching_secret' })
  })

  test('needs no secret to refuse', () => {
    expect(verified({}, [])).toMatchObject({ cause: 'no_matching_secret' })
  })
})

describe('the key set', () => {
  test('keeps the Ed25519 keys, at most eight', () => {
    const x = mine.signingSecret
    expect(publicKeysOf({ keys: [{ x }, { x, crv: 'X25519' }, { x, kty: 'RSA' }, { x: 1 }, null] })).toEqual([x])
    expect(publicKeysOf({ keys: Array.from({ length: 1000 }, () => ({ x })) })).toHaveLength(8)
  })

  test.each([...junk, { keys: [] }, { keys: {} }, { keys: [{ x: '' }] }])('finds no key in %j', (jwks) => {
    expect(publicKeysOf(jwks)).toBeUndefined()
  })
})

test('the id of a delivery is that of its job', () => {
  expect(fal.identify(arrived(real.headers, ''))).toEqual({ ok: true, webhookId: jobId })
  expect(fal.identify(arrived({}, ''))).toMatchObject({ ok: false, stated: undefined })
  expect(fal.identify(arrived({ 'x-fal-webhook-request-id': ['a', 'b'] }, ''))).toMatchObject({ ok: false })
})

const ended = (payload: unknown, more = {}) =>
  fal.parse({ request_id: jobId, status: 'OK', payload, error: null, ...more })
const failed = (payload: unknown, error: unknown = 'Invalid status code: 422') =>
  fal.parse({ request_id: jobId, status: 'ERROR', payload, error })

describe('the body', () => {
  test('of a picture lands with its size, without the seed that JSON cannot hold', () => {
    const url = 'https://v3.fal.media/files/lion/O853qAknYZGU8_2QCbJwd.jpeg'
    expect(fal.parse(JSON.parse(real.body))).toEqual({
      kind: 'report',
      jobId,
      report: {
        jobId,
        status: 'COMPLETED',
        model: undefined,
        output: { images: [{ url, width: 1024, height: 1024 }] },
        media: [{ kind: 'image', position: 0, url, width: 1024, height: 1024 }],
        mediaComplete: true,
        cost: undefined,
        error: undefined,
        createdAt: undefined,
        completedAt: undefined,
      },
    })
  })

  test.each<[string, unknown, unknown[]]>([
    ['video', { video: { url: 'https://a.test/1', file_size: 2 ** 60 } }, [['video', 0, 'https://a.test/1']]],
    ['audio', { audio: { url: 'https://a.test/1', content_type: 'audio/wav' } }, [['audio', 0, 'https://a.test/1']]],
    ['audio by its link', { audio_url: 'https://a.test/1' }, [['audio', 0, 'https://a.test/1']]],
    [
      'several pictures and a video',
      { images: [{ url: 'https://a.test/1' }, { url: 'https://a.test/2' }], video: { url: 'https://a.test/3' } },
      [
        ['image', 0, 'https://a.test/1'],
        ['image', 1, 'https://a.test/2'],
        ['video', 0, 'https://a.test/3'],
      ],
    ],
  ])('of %s', (_, payload, media) => {
    const parsed = ended(payload)
    const found = parsed.kind === 'report' ? parsed.report.media : undefined
    expect(found?.map(({ kind, position, url }) => [kind, position, url])).toEqual(media)
  })

  test('without its output is a reason to poll', () => {
    const parsed = ended(null, { payload_error: 'Response payload is not JSON serializable.' })
    expect(parsed).toEqual({ kind: 'hint', jobId, poll: true })
  })

  test.each<[string, unknown, object]>([
    [
      'a refused input',
      { detail: [{ loc: ['body', 'prompt'], msg: 'field required', type: 'value_error.missing' }] },
      { code: 'value_error.missing', message: 'field required' },
    ],
    [
      'a fault of fal',
      { detail: 'Request timed out', error_type: 'request_timeout' },
      { code: 'request_timeout', message: 'Request timed out' },
    ],
    ['nothing else', null, { code: 'error', message: 'Invalid status code: 422' }],
    ['wrong types', { detail: [[1]], error_type: {} }, { code: 'error', message: 'Invalid status code: 422' }],
  ])('of a failure with %s', (_, payload, error) => {
    expect(failed(payload)).toMatchObject({ kind: 'report', report: { status: 'FAILED', error } })
  })

  test('of a failure without any text names a cause', () => {
    expect(failed(undefined, null)).toMatchObject({ report: { error: { message: 'fal reported no cause' } } })
  })

  test('of a canceled job', () => {
    const payload = { detail: 'Client cancelled the request', error_type: 'client_cancelled' }
    expect(failed(payload)).toMatchObject({ report: { status: 'CANCELED' } })
    expect(failed(payload)).not.toHaveProperty('report.error')
  })

  test.each<[string, unknown]>([
    ['text', { text: 'A dog' }],
    ['another scheme', { images: [{ url: 'ftp://a.test/1.png' }] }],
    ['a link without a host', { images: [{ url: 'https://' }] }],
    ['101 pictures', { images: Array.from({ length: 101 }, () => ({ url: 'https://a.test/1.png' })) }],
    ['a million values', { values: Array(1_000_000).fill('https://a.test/1.png') }],
    ['a picture before 10,001 values', { image: 'https://a.test/1.png', values: Array(10_001).fill('x') }],
    ['deep nesting', JSON.parse(deepJson('images'))],
  ])('with %s instead of media is parked', (_, payload) => {
    expect(ended(payload)).toEqual({ kind: 'unreadable', reason: 'unknown_shape', jobId })
  })

  test.each([
    { images: [{ url: 'data:image/png;base64,AAAA', content_type: 'image/png' }] },
    { video: 'DATA:video/mp4;base64,AAAA' },
  ])('with base64 in %j is parked for that', (payload) => {
    expect(ended(payload)).toEqual({ kind: 'unreadable', reason: 'inline_media', jobId })
    expect(ended({ ...payload, audio: { url: 'https://a.test/1.mp3' } })).toMatchObject({
      report: { media: [{ kind: 'audio' }] },
    })
  })

  test('with base64 lands where an archive keeps it, under the links that it will have there', () => {
    const pictures = [pngOf(8), pngOf(9)]
    const images = pictures.map((bytes) => ({ url: dataUri(bytes), width: 8, height: 8 }))
    const parsed = fal.parse(
      { request_id: jobId, status: 'OK', payload: { images } },
      { kind: 's3', bucket: 'b', prefix: 'p' },
    )
    const media = pictures.map((bytes, position) => {
      const sha256 = sha256Hex(bytes)
      return { kind: 'image', position, url: `s3://b/p/${sha256.slice(0, 2)}/${sha256}.png`, width: 8, height: 8 }
    })
    expect(parsed).toMatchObject({ kind: 'report', report: { status: 'COMPLETED', media } })
    expect(Object(parsed).report.output.images).toHaveLength(2)
    expect(JSON.stringify(Object(parsed).report.output)).not.toContain('base64')
  })

  test.each([
    ['of no type that the archive keeps', 'data:image/svg+xml;base64,PHN2Zz4='],
    ['that is a video and calls itself a picture', dataUri(videoOfPng(pngOf(8)))],
    ['that is not base64', 'data:image/png,%89PNG'],
  ])('with an item %s is parked whole', (_, url) => {
    const payload = { images: [{ url: dataUri(pngOf(8)) }, { url }] }
    const archive = { kind: 'file', root: '/srv' } as const
    const parsed = fal.parse({ request_id: jobId, status: 'OK', payload }, archive)
    expect(parsed).toEqual({ kind: 'unreadable', reason: 'inline_media', jobId })
  })

  test('with sizes of wrong types lands without them', () => {
    const payload = { images: [{ url: 'https://a.test/1.png', width: 2 ** 60, height: '1', content_type: 7 }] }
    expect(ended(payload)).toMatchObject({ report: { media: [{ width: undefined, height: undefined }] } })
  })

  test('with another status is parked', () => {
    expect(ended({}, { status: 'COMPLETED' })).toEqual({ kind: 'unreadable', reason: 'unknown_status', jobId })
  })

  test.each(junk)('%j has no report', (json) => {
    expect(fal.parse(json)).toMatchObject({ kind: 'unreadable', jobId: undefined })
  })
})

describe('a poll', () => {
  const url = 'https://queue.fal.run'
  const job = { jobId, model: 'fal-ai/flux/dev' }
  const path = `${url}/fal-ai/flux/requests/${jobId}`
  const urls = { request_id: jobId, response_url: path, status_url: `${path}/status`, cancel_url: `${path}/cancel` }

  // The bodies are checked against the types of fal's own package.
  test('reads the states and the output as the client of fal types them', async () => {
    const queued = { ...urls, status: 'IN_QUEUE', queue_position: 2 } as const satisfies QueueStatus
    const running = { ...urls, status: 'IN_PROGRESS', logs: [] } as const satisfies QueueStatus
    const done = {
      ...urls,
      status: 'COMPLETED',
      logs: [],
      metrics: { inference_time: 2.1 },
    } as const satisfies QueueStatus
    const image = { url: 'https://v3.fal.media/files/a.jpeg', width: 1024, height: 768, content_type: 'image/jpeg' }
    const output = {
      images: [image],
      timings: {},
      seed: 1,
      has_nsfw_concepts: [false],
      prompt: 'dog',
    } satisfies OutputType<'fal-ai/flux/dev'>
    const asked = (...bodies: object[]) =>
      fal.fetchResult(job, apiOf(url, ...bodies.map((json) => ({ status: 200, json }))).api)
    expect(await asked(queued)).toMatchObject({ kind: 'running', status: { status: 'IN_QUEUE', queue_position: 2 } })
    expect(await asked(running)).toMatchObject({ kind: 'running', status: { status: 'IN_PROGRESS' } })
    const media = [{ kind: 'image', position: 0, url: image.url, width: 1024, height: 768 }]
    expect(await asked(done, output)).toMatchObject({ kind: 'result', report: { status: 'COMPLETED', media } })
  })

  test('asks below owner and app, and then for the output', async () => {
    const output = { images: [{ url: 'https://a.test/1.png' }] }
    const { api, calls } = apiOf(url, { status: 200, json: { status: 'COMPLETED' } }, { status: 200, json: output })
    const outcome = await fal.fetchResult(job, api)
    expect(outcome).toMatchObject({ kind: 'result', report: { jobId, status: 'COMPLETED', model: 'fal-ai/flux/dev' } })
    expect(calls).toEqual([
      {
        url: `${url}/fal-ai/flux/requests/${jobId}/status`,
        headers: expect.objectContaining({ authorization: 'Key key' }),
      },
      { url: `${url}/fal-ai/flux/requests/${jobId}`, headers: expect.objectContaining({ authorization: 'Key key' }) },
    ])
  })

  test.each([
    ['workflows/me/flow/sub', `${url}/workflows/me/flow/requests/${jobId}/status`],
    ['me/app', `${url}/me/app/requests/${jobId}/status`],
  ])('of %s asks %s', async (model, expected) => {
    const { api, calls } = apiOf(url, { status: 404 })
    expect(await fal.fetchResult({ jobId, model }, api)).toEqual({ kind: 'not_found' })
    expect(calls[0]?.url).toBe(expected)
  })

  test.each([undefined, '', 'app', '../app', 'me/..', 'me/app?x=', 'me//app', 'workflows/me'])(
    'of model %j asks nothing',
    async (model) => {
      const { api, calls } = apiOf(url)
      expect(await fal.fetchResult({ jobId, model }, api)).toMatchObject({ kind: 'invalid' })
      expect(calls).toEqual([])
    },
  )

  test.each<[object, object]>([
    [
      { status: 'IN_QUEUE', queue_position: 3 },
      { status: 'IN_QUEUE', progress: 0, queue_position: 3 },
    ],
    [{ status: 'IN_PROGRESS' }, { status: 'IN_PROGRESS', progress: 0, queue_position: null }],
    [
      { status: 'IN_QUEUE', queue_position: '3' },
      { status: 'IN_QUEUE', progress: 0, queue_position: null },
    ],
  ])('finds %j running', async (json, status) => {
    expect(await fal.fetchResult(job, apiOf(url, { status: 202, json }).api)).toEqual({ kind: 'running', status })
  })

  test('finds a failure in the status', async () => {
    const json = { status: 'COMPLETED', error: 'Request timed out', error_type: 'request_timeout' }
    expect(await fal.fetchResult(job, apiOf(url, { status: 200, json }).api)).toMatchObject({
      kind: 'result',
      report: { status: 'FAILED', error: { code: 'request_timeout', message: 'Request timed out' } },
    })
  })

  test.each<[{ status: number; json?: unknown; retryAfterSeconds?: number }, object]>([
    [{ status: 401 }, { kind: 'unauthorized' }],
    [
      { status: 429, retryAfterSeconds: 7 },
      { kind: 'rate_limited', retryAfterSeconds: 7 },
    ],
    [{ status: 503 }, { kind: 'unreachable' }],
    [{ status: 302 }, { kind: 'invalid' }],
    [{ status: 200, json: { images: [{ url: 'https://a.test/\0.png' }] } }, { kind: 'invalid' }],
    [
      { status: 200, json: { text: 'A dog' } },
      { kind: 'invalid', detail: 'the result contains no media' },
    ],
    [
      { status: 200, json: { image: { url: 'data:image/png;base64,AAAA' } } },
      { kind: 'invalid', detail: 'the result contains base64, which needs MEDIA_ARCHIVE' },
    ],
    [{ status: 200 }, { kind: 'invalid' }],
  ])('whose output is answered %j', async (answer, outcome) => {
    const { api } = apiOf(url, { status: 200, json: { status: 'COMPLETED' } }, answer)
    expect(await fal.fetchResult(job, api)).toMatchObject(outcome)
  })

  test.each(junk)('answered %j is invalid', async (json) => {
    expect(await fal.fetchResult(job, apiOf(url, { status: 200, json }).api)).toMatchObject({ kind: 'invalid' })
  })
})

describe('a cancellation', () => {
  const url = 'https://queue.fal.run'
  const job = { jobId, model: 'fal-ai/flux/dev' }

  test.each<[number, object, object]>([
    [202, { status: 'CANCELLATION_REQUESTED' }, { kind: 'asked' }],
    [200, { status: 'OK' }, { kind: 'asked' }],
    [400, { status: 'ALREADY_COMPLETED' }, { kind: 'ended' }],
    [400, { status: 'OTHER' }, { kind: 'invalid' }],
    [404, { status: 'NOT_FOUND' }, { kind: 'not_found' }],
    [401, {}, { kind: 'unauthorized' }],
    [503, {}, { kind: 'unreachable' }],
  ])('answered %i %j', async (status, json, outcome) => {
    const { api, calls } = apiOf(url, { status, json })
    expect(await fal.cancel?.(job, api)).toMatchObject(outcome)
    const expected = { method: 'PUT', url: `${url}/fal-ai/flux/requests/${jobId}/cancel` }
    expect(calls).toMatchObject([{ ...expected, headers: { authorization: 'Key key' } }])
  })

  test('of an unknown model calls nothing', async () => {
    const { api, calls } = apiOf(url)
    expect(await fal.cancel?.({ jobId, model: undefined }, api)).toMatchObject({ kind: 'invalid' })
    expect(calls).toEqual([])
  })
})

describe('a submit', () => {
  const url = 'https://queue.fal.run'
  const webhookUrl = 'https://me.test/webhooks/fal?a=1&b=2'
  const submission = { model: 'fal-ai/flux/dev', input: { prompt: 'dog' }, webhookUrl, idempotencyKey: 'k' }

  test('names the webhook in the query', async () => {
    const { api, calls } = apiOf(url, { status: 200, json: { request_id: jobId, queue_position: 0 } })
    expect(await fal.submit(submission, api)).toEqual({ kind: 'submitted', jobId, cost: undefined })
    expect(calls[0]).toMatchObject({
      url: `${url}/fal-ai/flux/dev?fal_webhook=${encodeURIComponent(webhookUrl)}`,
      method: 'POST',
      body: '{"prompt":"dog"}',
    })
  })

  test.each<[{ status: number; json?: unknown; retryAfterSeconds?: number }, object]>([
    [
      { status: 422, json: { detail: [{ msg: 'field required' }] } },
      { kind: 'refused', status: 422 },
    ],
    [
      { status: 403, json: { detail: 'no' } },
      { kind: 'unauthorized', status: 403 },
    ],
    [
      { status: 429, retryAfterSeconds: 7 },
      { kind: 'rate_limited', retryAfterSeconds: 7 },
    ],
    [{ status: 500 }, { kind: 'unreachable' }],
    [{ status: 408 }, { kind: 'unreachable' }],
    [{ status: 302 }, { kind: 'unreachable' }],
    [{ status: 200, json: {} }, { kind: 'unreachable' }],
    [{ status: 200, json: { request_id: '../x' } }, { kind: 'unreachable' }],
  ])('answered %j', async (answer, outcome) => {
    expect(await fal.submit(submission, apiOf(url, answer).api)).toMatchObject(outcome)
  })

  test('of a text that is no model calls nothing', async () => {
    const { api, calls } = apiOf(url)
    expect(await fal.submit({ ...submission, model: '../x' }, api)).toMatchObject({ kind: 'refused' })
    expect(calls).toEqual([])
  })
})
