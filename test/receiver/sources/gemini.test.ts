import { Webhook } from 'standardwebhooks'
import { describe, expect, test } from 'vitest'
import { atOnce } from '../../../src/receiver/domain/source.ts'
import { gemini } from '../../../src/receiver/sources/gemini.ts'
import { apiOf, arrived, deepJson, junk } from './support/calls.ts'

const jobId = 'models/veo-3.1-generate-preview/operations/abc123'
const event = (type: string, data: object) => ({ type, version: 'v1', timestamp: '2026-01-22T12:00:00Z', data })

describe('a webhook', () => {
  test('is verified as the package of the scheme signs it', () => {
    const signingSecret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'
    const nowSeconds = 1_767_225_600
    const body = JSON.stringify(event('video.generated', { id: jobId }))
    const headers = {
      'webhook-id': 'a',
      'webhook-timestamp': String(nowSeconds),
      'webhook-signature': new Webhook(signingSecret).sign('a', new Date(nowSeconds * 1000), body),
    }
    const secrets = [{ name: 'mine', signingSecret }]
    expect(atOnce(gemini.verify(arrived(headers, body), secrets, nowSeconds))).toMatchObject({ ok: true })
    expect(atOnce(gemini.verify(arrived(headers, `${body} `), secrets, nowSeconds))).toMatchObject({ ok: false })
    // The dynamic webhooks have a JWT instead.
    expect(atOnce(gemini.verify(arrived({ 'webhook-signature': 'a.b.c' }, body), secrets, nowSeconds))).toMatchObject({
      cause: 'missing_header',
    })
  })

  test('of a video is a reason to poll, because it has no link', () => {
    const data = { id: jobId, output_file_uri: 'gs://a/b', file_name: 'files/abc' }
    expect(gemini.parse(event('video.generated', data))).toEqual({ kind: 'hint', jobId, poll: true })
  })

  test.each(['batch.succeeded', 'batch.failed', 'interaction.completed', 'video.failed'])('%s is parked', (type) => {
    const parsed = gemini.parse(event(type, { id: 'batch_123456', error_code: 'x' }))
    expect(parsed).toEqual({ kind: 'unreadable', reason: 'unknown_status', jobId: 'batch_123456' })
  })

  test.each([...junk, event('video.generated', { id: 7 })])('%j has no job', (json) => {
    expect(gemini.parse(json)).toMatchObject({ kind: 'unreadable', jobId: undefined })
  })
})

test('a body of a depth that overflows a stack has no report', () => {
  expect(gemini.parse(JSON.parse(deepJson('data')))).toMatchObject({ kind: 'unreadable', jobId: undefined })
})

const url = 'https://generativelanguage.googleapis.com'
const video = 'https://generativelanguage.googleapis.com/v1beta/files/abc:download?alt=media'
const ended = (generateVideoResponse: object) => ({ name: jobId, done: true, response: { generateVideoResponse } })

describe('a poll', () => {
  const job = { jobId, model: 'veo-3.1-generate-preview' }

  test.each<[string, object, object]>([
    [
      'a video',
      ended({ generatedSamples: [{ video: { uri: video } }] }),
      { kind: 'result', report: { status: 'COMPLETED', model: job.model, media: [{ kind: 'video', url: video }] } },
    ],
    [
      'a filtered one',
      ended({ raiMediaFilteredCount: 1, raiMediaFilteredReasons: ['celebrity'] }),
      { kind: 'result', report: { status: 'FAILED', error: { code: 'filtered', message: 'celebrity' } } },
    ],
    ['nothing at its end', ended({}), { kind: 'result', report: { status: 'FAILED', error: { code: 'filtered' } } }],
    [
      'a failure',
      { name: jobId, done: true, error: { code: 3, message: 'bad prompt' } },
      { kind: 'result', report: { status: 'FAILED', error: { code: '3', message: 'bad prompt' } } },
    ],
    ['a running one', { name: jobId, done: false }, { kind: 'running', status: { status: 'IN_PROGRESS' } }],
    ['a new one', { name: jobId }, { kind: 'running', status: { status: 'IN_PROGRESS' } }],
    ['another one', { ...ended({}), name: 'models/veo/operations/other' }, { kind: 'invalid' }],
    ['an end without a response', { name: jobId, done: true }, { kind: 'invalid' }],
    ['a link of another type', ended({ generatedSamples: [{ video: { uri: 7 } }] }), { kind: 'invalid' }],
    ['a link of another scheme', ended({ generatedSamples: [{ video: { uri: 'gs://a/b' } }] }), { kind: 'invalid' }],
  ])('that finds %s', async (_, json, outcome) => {
    const { api, calls } = apiOf(url, { status: 200, json })
    expect(await gemini.fetchResult(job, api)).toMatchObject(outcome)
    expect(calls).toMatchObject([{ url: `${url}/v1beta/${jobId}`, headers: { 'x-goog-api-key': 'key' } }])
  })

  test.each(['abc', '../x', 'models/../x', 'a//b', 'a/b?x', 'a/b#x', '/a/b', 'a/.'])(
    'of %j calls nothing',
    async (other) => {
      const { api, calls } = apiOf(url)
      expect(await gemini.fetchResult({ ...job, jobId: other }, api)).toMatchObject({ kind: 'invalid' })
      expect(calls).toEqual([])
    },
  )

  test.each(junk)('answered %j is invalid', async (json) => {
    expect(await gemini.fetchResult(job, apiOf(url, { status: 200, json }).api)).toMatchObject({ kind: 'invalid' })
  })
})

describe('a submit', () => {
  const input = { instances: [{ prompt: 'dog' }] }
  const submission = { model: 'veo-3.1-generate-preview', input, webhookUrl: 'https://me.test', idempotencyKey: 'k' }

  test('sends the input as it is', async () => {
    const { api, calls } = apiOf(url, { status: 200, json: { name: jobId } })
    expect(await gemini.submit(submission, api)).toEqual({ kind: 'submitted', jobId, cost: undefined })
    expect(calls).toMatchObject([
      { url: `${url}/v1beta/models/veo-3.1-generate-preview:predictLongRunning`, body: JSON.stringify(input) },
    ])
  })

  test.each<[string, { status: number; json?: unknown }, object]>([
    ['../x', { status: 200 }, { kind: 'refused' }],
    ['veo', { status: 400, json: { error: { code: 400, message: 'bad' } } }, { kind: 'refused', status: 400 }],
    ['veo', { status: 500 }, { kind: 'unreachable' }],
  ])('of %s answered %j', async (model, answer, outcome) => {
    expect(await gemini.submit({ ...submission, model }, apiOf(url, answer).api)).toMatchObject(outcome)
  })
})
