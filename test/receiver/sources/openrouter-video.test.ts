import { createHmac } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { atOnce } from '../../../src/receiver/domain/source.ts'
import { openrouterVideo } from '../../../src/receiver/sources/openrouter-video.ts'
import { apiOf, arrived, deepJson, junk } from './support/calls.ts'

const secrets = [{ name: 'mine', signingSecret: 'test_secret' }]
const signedAt = 1_700_000_000
const body = '{"type":"video.generation.completed"}'
const digest = '032ed28ef9ea25b7c9f978125b37071d6cedcb4faad395948fd9bb0e1783d8b8'
const header = `t=${signedAt},v1=${digest}`

type Change = { sent?: string | Buffer; late?: number }

function verified(value: string | string[], { sent = body, late = 0 }: Change = {}) {
  const headers = { 'x-openrouter-signature': value }
  return atOnce(openrouterVideo.verify(arrived(headers, sent), secrets, signedAt + late))
}

describe('the signature', () => {
  test('accepts the vector', () => {
    expect(verified(header)).toEqual({ ok: true, keyName: 'mine', timestampSeconds: signedAt })
  })

  test('is not that of the default source, which has a dot after the timestamp', () => {
    const dotted = createHmac('sha256', 'test_secret').update(`${signedAt}.${body}`).digest('hex')
    expect(verified(`t=${signedAt},v1=${dotted}`)).toMatchObject({ cause: 'no_matching_secret' })
  })

  test('covers every step of a large body', () => {
    const sent = Buffer.alloc(200_000, 0xff)
    const large = createHmac('sha256', 'test_secret').update(`${signedAt},`).update(sent).digest('hex')
    expect(verified(`t=${signedAt},v1=${large}`, { sent })).toMatchObject({ ok: true })
  })

  test.each(['{"a":"$& $$ $` $1"}', "$'", '%s {0}'])('covers a body that reads like a pattern: %j', (sent) => {
    const right = createHmac('sha256', 'test_secret').update(`${signedAt},${sent}`).digest('hex')
    expect(verified(`t=${signedAt},v1=${right}`, { sent })).toMatchObject({ ok: true })
  })

  test.each<[string | string[], Change, string]>([
    [header, { sent: `${body} ` }, 'no_matching_secret'],
    [header.replace(String(signedAt), String(signedAt + 1)), {}, 'no_matching_secret'],
    [header, { late: 301 }, 'timestamp_too_old'],
    [header, { late: -301 }, 'timestamp_in_future'],
    [[], {}, 'missing_header'],
    [[header, header], {}, 'malformed_header'],
    [digest, {}, 'malformed_header'],
  ])('refuses %j with %j', (value, change, cause) => {
    expect(verified(value, change)).toMatchObject({ ok: false, cause })
  })
})

test('the id of a delivery is its idempotency key', () => {
  const name = 'x-openrouter-idempotency-key'
  expect(openrouterVideo.identify(arrived({ [name]: 'k' }, ''))).toEqual({ ok: true, webhookId: 'k' })
  expect(openrouterVideo.identify(arrived({}, ''))).toMatchObject({ ok: false })
  expect(openrouterVideo.identify(arrived({ [name]: ['k', 'k'] }, ''))).toMatchObject({ ok: false, stated: 'k' })
})

const jobId = 'job-abc123'
const event = (status: string, data: object = {}) => ({
  type: `video.generation.${status}`,
  created_at: signedAt,
  data: { id: jobId, status, model: 'google/veo-3.1', ...data },
})

describe('the body', () => {
  test('of a completed job is a reason to poll, because its links need the key', () => {
    const links = { unsigned_urls: ['https://openrouter.ai/api/v1/videos/job-abc123/content'], usage: { cost: 0.5 } }
    expect(openrouterVideo.parse(event('completed', links))).toEqual({
      kind: 'hint',
      jobId,
      poll: true,
    })
  })

  test.each<[string, object, object]>([
    ['failed', { error: 'refused' }, { status: 'FAILED', error: { code: 'failed', message: 'refused' } }],
    ['failed', { error: { a: 1 } }, { status: 'FAILED', error: { code: 'failed' } }],
    ['expired', {}, { status: 'FAILED', error: { code: 'expired' } }],
  ])('of a job that is %s, with %j', (status, data, report) => {
    expect(openrouterVideo.parse(event(status, data))).toMatchObject({ kind: 'report', report })
  })

  test('of a job that is cancelled has no error', () => {
    const report = { jobId, status: 'CANCELED', model: 'google/veo-3.1', media: [], mediaComplete: true }
    expect(openrouterVideo.parse(event('cancelled'))).toEqual({ kind: 'report', jobId, report })
  })

  test.each(['pending', 'in_progress', 'x'])('of the event %s is parked', (status) => {
    expect(openrouterVideo.parse(event(status))).toEqual({ kind: 'unreadable', reason: 'unknown_status', jobId })
  })

  test.each([...junk, { ...event('completed'), data: [] }])('%j has no report', (json) => {
    expect(openrouterVideo.parse(json)).toMatchObject({ kind: 'unreadable', jobId: undefined })
  })
})

test('a body of a depth that overflows a stack has no report', () => {
  expect(openrouterVideo.parse(JSON.parse(deepJson('data')))).toMatchObject({ kind: 'unreadable', jobId: undefined })
})

const url = 'https://openrouter.ai/api/v1'

describe('a poll', () => {
  const signed = 'https://storage.test/1.mp4?sig=x'
  const unsigned = 'https://openrouter.ai/api/v1/videos/job-abc123/content'
  const done = { id: jobId, status: 'completed', unsigned_urls: [unsigned], usage: { cost: 0.5, is_byok: false } }

  test.each([
    [{ ...done, urls: [signed] }, signed],
    [done, unsigned],
  ])('of %j lands %s', async (json, link) => {
    const { api, calls } = apiOf(url, { status: 200, json })
    expect(await openrouterVideo.fetchResult({ jobId, model: undefined }, api)).toMatchObject({
      kind: 'result',
      report: { cost: 0.5, output: { video: { url: link } }, media: [{ kind: 'video', position: 0, url: link }] },
    })
    expect(calls).toMatchObject([{ url: `${url}/videos/${jobId}`, headers: { authorization: 'Bearer key' } }])
  })

  test.each<[object, object]>([
    [
      { id: jobId, status: 'pending' },
      { kind: 'running', status: { status: 'IN_QUEUE' } },
    ],
    [
      { id: jobId, status: 'in_progress' },
      { kind: 'running', status: { status: 'IN_PROGRESS' } },
    ],
    [{ ...done, id: 'other' }, { kind: 'invalid' }],
    [{ ...done, unsigned_urls: [] }, { kind: 'invalid' }],
    [{ ...done, unsigned_urls: [7] }, { kind: 'invalid' }],
    [{ ...done, urls: ['data:video/mp4;base64,AA'] }, { kind: 'invalid' }],
    [{ ...done, status: 'done' }, { kind: 'invalid' }],
  ])('of %j', async (json, outcome) => {
    const { api } = apiOf(url, { status: 200, json })
    expect(await openrouterVideo.fetchResult({ jobId, model: undefined }, api)).toMatchObject(outcome)
  })

  test.each(junk)('answered %j is invalid', async (json) => {
    const { api } = apiOf(url, { status: 200, json })
    expect(await openrouterVideo.fetchResult({ jobId, model: undefined }, api)).toMatchObject({ kind: 'invalid' })
  })
})

describe('a submit', () => {
  const submission = { model: 'google/veo-3.1', webhookUrl: 'https://me.test/webhooks/o', idempotencyKey: 'k' }

  test('names the model and the webhook in the body, above those of the input', async () => {
    const { api, calls } = apiOf(url, { status: 202, json: { id: jobId, status: 'pending' } })
    const input = { prompt: 'dog', callback_url: 'https://other.test' }
    const outcome = await openrouterVideo.submit({ ...submission, input }, api)
    expect(outcome).toEqual({ kind: 'submitted', jobId, cost: undefined })
    expect(calls[0]?.url).toBe(`${url}/videos`)
    expect(JSON.parse(calls[0]?.body ?? '')).toEqual({
      prompt: 'dog',
      model: 'google/veo-3.1',
      callback_url: 'https://me.test/webhooks/o',
    })
  })

  test('of an input that is no object calls nothing', async () => {
    const { api, calls } = apiOf(url)
    expect(await openrouterVideo.submit({ ...submission, input: 'dog' }, api)).toMatchObject({ kind: 'refused' })
    expect(calls).toEqual([])
  })

  test.each<[{ status: number; json?: unknown }, object]>([
    [
      { status: 402, json: { error: { message: 'no credits', code: 402 } } },
      { kind: 'refused', status: 402 },
    ],
    [{ status: 500 }, { kind: 'unreachable' }],
  ])('answered %j', async (answer, outcome) => {
    expect(await openrouterVideo.submit({ ...submission, input: {} }, apiOf(url, answer).api)).toMatchObject(outcome)
  })
})
