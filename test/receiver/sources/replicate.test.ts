import { createHmac } from 'node:crypto'
import fc from 'fast-check'
import { validateWebhook, type Prediction } from 'replicate'
import { Webhook } from 'standardwebhooks'
import { describe, expect, test } from 'vitest'
import { atOnce } from '../../../src/receiver/domain/source.ts'
import { replicate } from '../../../src/receiver/sources/replicate.ts'
import { apiOf, arrived, deepJson, junk } from './support/calls.ts'

const id = 'vcscvthbaxrm80cq9xqtcbaw4m'
const link = 'https://replicate.delivery/xezq/tmp5v_v9dtm.png'
// A delivery that a user published, shortened.
const prediction = {
  completed_at: '2025-06-08T12:06:20.383588891Z',
  created_at: '2025-06-08T12:06:15.127Z',
  data_removed: false,
  error: null,
  id,
  input: { prompt: 'a dog', image: 'https://example.test/input.png' },
  logs: '',
  metrics: { image_count: 1, predict_time: 5.247161016 },
  model: 'black-forest-labs/flux-kontext-pro',
  output: link,
  started_at: '2025-06-08T12:06:15.136427877Z',
  status: 'succeeded',
  urls: {
    cancel: `https://api.replicate.com/v1/predictions/${id}/cancel`,
    get: `https://api.replicate.com/v1/predictions/${id}`,
  },
  version: 'hidden',
  // The package of Replicate types a `source`, which the delivery lacks, and fewer metrics.
} satisfies Omit<Prediction, 'source' | 'metrics'> & { metrics: object }

describe('the signature, against the packages of the scheme and of Replicate', () => {
  const secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'
  const nowSeconds = 1_767_225_600
  const secrets = [{ name: 'mine', signingSecret: secret }]
  const headersOf = (signature: string, webhookId: string) => ({
    'webhook-id': webhookId,
    'webhook-timestamp': String(nowSeconds),
    'webhook-signature': signature,
  })
  const webhookId = fc.stringMatching(/^[A-Za-z0-9_]{1,64}$/)
  const bodies = fc.oneof(fc.json(), fc.string({ unit: 'grapheme', minLength: 1 }), fc.constant('{"a":"$& $$ $`"}'))
  const isValid = (body: string, headers: ReturnType<typeof headersOf>) =>
    validateWebhook({
      id: headers['webhook-id'],
      timestamp: headers['webhook-timestamp'],
      signature: headers['webhook-signature'],
      body,
      secret,
    })

  test('accepts what they sign, and both accept it', async () => {
    await fc.assert(
      fc.asyncProperty(webhookId, bodies, async (sentId, body) => {
        fc.pre(body.isWellFormed() && body !== '')
        const signature = new Webhook(secret).sign(sentId, new Date(nowSeconds * 1000), body)
        const headers = headersOf(signature, sentId)
        expect(atOnce(replicate.verify(arrived(headers, body), secrets, nowSeconds))).toMatchObject({ ok: true })
        expect(await isValid(body, headers)).toBe(true)
        expect(replicate.identify(arrived(headers, body))).toEqual({ ok: true, webhookId: sentId })
      }),
      { numRuns: 200 },
    )
  })

  test('refuses a changed body, as they do', async () => {
    await fc.assert(
      fc.asyncProperty(webhookId, bodies, async (sentId, body) => {
        fc.pre(body.isWellFormed() && body !== '')
        const signature = new Webhook(secret).sign(sentId, new Date(nowSeconds * 1000), body)
        const headers = headersOf(signature, sentId)
        const refused = atOnce(replicate.verify(arrived(headers, `${body} `), secrets, nowSeconds))
        expect(refused).toMatchObject({ ok: false, cause: 'no_matching_secret' })
        expect(await isValid(`${body} `, headers)).toBe(false)
      }),
      { numRuns: 100 },
    )
  })

  test('checks the time and the scheme, which the package of Replicate does not', async () => {
    const body = '{}'
    const signature = new Webhook(secret).sign('a', new Date(nowSeconds * 1000), body)
    const headers = headersOf(signature, 'a')
    expect(await isValid(body, headers)).toBe(true)
    const late = atOnce(replicate.verify(arrived(headers, body), secrets, nowSeconds + 301))
    expect(late).toMatchObject({ cause: 'timestamp_too_old' })
    const other = headersOf(signature.replace('v1,', 'v2,'), 'a')
    expect(await isValid(body, other)).toBe(true)
    const refused = atOnce(replicate.verify(arrived(other, body), secrets, nowSeconds))
    expect(refused).toMatchObject({ cause: 'malformed_header' })
  })

  test('accepts the signature of either secret during a rotation', () => {
    const old = `whsec_${Buffer.alloc(32, 1).toString('base64')}`
    const signed = createHmac('sha256', Buffer.alloc(32, 1)).update(`a.${nowSeconds}.{}`).digest('base64')
    const both = [
      { name: 'new', signingSecret: secret },
      { name: 'old', signingSecret: old },
    ]
    expect(atOnce(replicate.verify(arrived(headersOf(`v1,${signed}`, 'a'), '{}'), both, nowSeconds))).toMatchObject({
      ok: true,
      keyName: 'old',
    })
  })
})

describe('the body', () => {
  test('of a picture lands with its times and its model', () => {
    expect(replicate.parse(prediction)).toEqual({
      kind: 'report',
      jobId: id,
      report: {
        jobId: id,
        status: 'COMPLETED',
        model: 'black-forest-labs/flux-kontext-pro',
        output: { images: [{ url: link }] },
        media: [{ kind: 'image', position: 0, url: link }],
        mediaComplete: true,
        cost: undefined,
        error: undefined,
        createdAt: '2025-06-08T12:06:15.127Z',
        completedAt: '2025-06-08T12:06:20.383588891Z',
      },
    })
  })

  test.each<[string, unknown, [string, number][]]>([
    [
      'a list of pictures',
      [link, link.replace('.png', '.webp')],
      [
        ['image', 0],
        ['image', 1],
      ],
    ],
    ['a video', 'https://replicate.delivery/a/out.mp4', [['video', 0]]],
    ['audio', ['https://replicate.delivery/a/out.wav?x=1'], [['audio', 0]]],
    [
      'an object with members',
      { video: 'https://a.test/1', audio: 'https://a.test/2' },
      [
        ['video', 0],
        ['audio', 0],
      ],
    ],
  ])('of %s', (_, output, media) => {
    const parsed = replicate.parse({ ...prediction, output })
    const found = parsed.kind === 'report' ? parsed.report.media : undefined
    expect(found?.map(({ kind, position }) => [kind, position])).toEqual(media)
  })

  test.each<[string, object, object]>([
    ['failed', { error: 'CUDA out of memory' }, { status: 'FAILED', error: { message: 'CUDA out of memory' } }],
    ['failed', { error: { a: 1 } }, { status: 'FAILED', error: { message: 'Replicate reported no cause' } }],
  ])('of a prediction that is %s', (status, more, report) => {
    expect(replicate.parse({ ...prediction, output: null, status, ...more })).toMatchObject({ kind: 'report', report })
  })

  test.each(['canceled', 'aborted'])('of a prediction that is %s has no error', (status) => {
    const parsed = replicate.parse({ ...prediction, output: null, status })
    expect(parsed).toMatchObject({ kind: 'report', report: { status: 'CANCELED', media: [] } })
    expect(parsed).not.toHaveProperty('report.error')
  })

  test.each(['starting', 'processing'])('of a prediction that is %s is no reason to poll', (status) => {
    const running = { ...prediction, output: [link], status }
    expect(replicate.parse(running)).toMatchObject({ kind: 'hint', jobId: id, poll: false })
  })

  test.each<[string, unknown, string?]>([
    ['removed', null],
    ['text', 'a dog'],
    ['tokens', ['a', ' dog', 'https']],
    ['an archive', 'https://replicate.delivery/a/out.zip'],
    ['deep', JSON.parse(deepJson('a'))],
    ['base64', ['data:image/webp;base64,AAAA'], 'inline_media'],
  ])('with an output that is %s is parked', (_, output, reason = 'unknown_shape') => {
    expect(replicate.parse({ ...prediction, output })).toEqual({ kind: 'unreadable', reason, jobId: id })
  })

  test('keeps its other members out, so that numbers beyond 2^53 do not change', () => {
    const text = JSON.stringify({ ...prediction, input: { seed: 0 } }).replace(
      '"seed":0',
      '"seed":17454220438242315174',
    )
    const parsed = replicate.parse(JSON.parse(text))
    expect(parsed).toMatchObject({ kind: 'report' })
    expect(JSON.stringify(parsed)).not.toContain('seed')
  })

  test('with an unknown status is parked', () => {
    expect(replicate.parse({ ...prediction, status: 'queued' })).toMatchObject({ reason: 'unknown_status', jobId: id })
  })

  test.each(junk)('%j has no report', (json) => {
    expect(replicate.parse(json)).toMatchObject({ kind: 'unreadable', jobId: undefined })
  })
})

const url = 'https://api.replicate.com/v1'

describe('a poll', () => {
  const job = { jobId: id, model: undefined }
  test.each<[string, { status: number; json?: unknown; retryAfterSeconds?: number }, object]>([
    ['the end', { status: 200, json: prediction }, { kind: 'result', report: { jobId: id, status: 'COMPLETED' } }],
    ['a running one', { status: 200, json: { ...prediction, status: 'starting' } }, { kind: 'running' }],
    ['another one', { status: 200, json: { ...prediction, id: 'other' } }, { kind: 'invalid' }],
    ['removed media', { status: 200, json: { ...prediction, output: null, data_removed: true } }, { kind: 'invalid' }],
    ['NUL', { status: 200, json: { ...prediction, status: 'failed', error: 'a\0' } }, { kind: 'invalid' }],
    ['nothing', { status: 404 }, { kind: 'not_found' }],
    ['a throttle', { status: 429, retryAfterSeconds: 30 }, { kind: 'rate_limited', retryAfterSeconds: 30 }],
    ['text', { status: 200 }, { kind: 'invalid' }],
  ])('that finds %s', async (_, answer, outcome) => {
    const { api, calls } = apiOf(url, answer)
    expect(await replicate.fetchResult(job, api)).toMatchObject(outcome)
    expect(calls).toMatchObject([{ url: `${url}/predictions/${id}`, headers: { authorization: 'Bearer key' } }])
  })

  test.each(junk)('answered %j is invalid', async (json) => {
    expect(await replicate.fetchResult(job, apiOf(url, { status: 200, json }).api)).toMatchObject({ kind: 'invalid' })
  })
})

describe('a submit', () => {
  const version = '5c7d5dc6dd8bf75c1acaa8565735e7986bc5b66206b55cca93cb72c9bf15ccaa'
  const submission = { input: { prompt: 'dog' }, webhookUrl: 'https://me.test/webhooks/r', idempotencyKey: 'k' }

  test.each([
    ['me/flux', '/models/me/flux/predictions', undefined],
    [`me/flux:${version}`, '/predictions', version],
    [version, '/predictions', version],
  ])('of %s asks for the webhook of the end', async (model, path, sent) => {
    const { api, calls } = apiOf(url, { status: 201, json: { id, status: 'starting' } })
    expect(await replicate.submit({ ...submission, model }, api)).toEqual({
      kind: 'submitted',
      jobId: id,
      cost: undefined,
    })
    expect(calls).toMatchObject([{ url: `${url}${path}`, method: 'POST' }])
    expect(JSON.parse(calls[0]?.body ?? '')).toEqual({
      version: sent,
      input: { prompt: 'dog' },
      webhook: 'https://me.test/webhooks/r',
      webhook_events_filter: ['completed'],
    })
  })

  test.each(['', 'flux', '../x', 'me/..', 'me/flux/x', 'me/flux:1', `me/flux:${version}:1`, 'me/flux?a'])(
    'of %j calls nothing',
    async (model) => {
      const { api, calls } = apiOf(url)
      expect(await replicate.submit({ ...submission, model }, api)).toMatchObject({ kind: 'refused' })
      expect(calls).toEqual([])
    },
  )

  test.each<[{ status: number; json?: unknown; retryAfterSeconds?: number }, object]>([
    [
      { status: 422, json: { detail: 'no' } },
      { kind: 'refused', envelope: { error: { message: 'no' } } },
    ],
    [{ status: 401, json: { detail: 'a\0' } }, { kind: 'unauthorized' }],
    [
      { status: 429, retryAfterSeconds: 30 },
      { kind: 'rate_limited', retryAfterSeconds: 30 },
    ],
    [{ status: 502 }, { kind: 'unreachable' }],
    [{ status: 201, json: {} }, { kind: 'unreachable' }],
  ])('answered %j', async (answer, outcome) => {
    const { api } = apiOf(url, answer)
    expect(await replicate.submit({ ...submission, model: 'me/flux' }, api)).toMatchObject(outcome)
  })
})
