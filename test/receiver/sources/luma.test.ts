import { describe, expect, test } from 'vitest'
import { atOnce } from '../../../src/receiver/domain/source.ts'
import { luma } from '../../../src/receiver/sources/luma.ts'
import { apiOf, arrived, deepJson, junk } from './support/calls.ts'

const jobId = '123e4567-e89b-12d3-a456-426614174000'
const video = 'https://storage.cdn-luma.com/dream_machine/1.mp4'
const generation = {
  id: jobId,
  state: 'completed',
  failure_reason: null,
  created_at: '2025-06-08T12:06:15.127Z',
  generation_type: 'video',
  model: 'ray-2',
  assets: { video, progress_video: 'https://storage.cdn-luma.com/dream_machine/2.mp4' },
  request: { prompt: 'a dog' },
}

describe('a webhook, which anybody can send', () => {
  test.each(['completed', 'failed'])('of a generation that is %s is a reason to poll, and never a result', (state) => {
    const parsed = luma.parse({ ...generation, state })
    expect(parsed).toEqual({ kind: 'hint', jobId, poll: true })
  })

  test('of a completed generation without media is a reason to poll', () => {
    expect(luma.parse({ ...generation, assets: null })).toEqual({ kind: 'hint', jobId, poll: true })
  })

  test.each(['queued', 'dreaming'])('of a generation that is %s is no reason to poll', (state) => {
    expect(luma.parse({ ...generation, state })).toEqual({ kind: 'hint', jobId, poll: false })
  })

  test('of an unknown state is parked', () => {
    expect(luma.parse({ ...generation, state: 'done' })).toEqual({
      kind: 'unreadable',
      reason: 'unknown_status',
      jobId,
    })
  })

  test.each(junk)('%j has no job', (json) => {
    expect(luma.parse(json)).toMatchObject({ kind: 'unreadable', jobId: undefined })
  })

  test('has the id of its bytes', () => {
    const first = luma.identify(arrived({}, 'a'))
    expect(luma.identify(arrived({}, 'a'))).toEqual(first)
    expect(luma.identify(arrived({}, 'b'))).not.toEqual(first)
    expect(first).toMatchObject({ ok: true, webhookId: expect.stringMatching(/^sha256-[0-9a-f]{64}$/) })
  })

  test('counts for the first key, at the time of arrival', () => {
    const secrets = [{ name: 'mine', signingSecret: '' }]
    expect(atOnce(luma.verify(arrived({}, 'a'), secrets, 7))).toEqual({
      ok: true,
      keyName: 'mine',
      timestampSeconds: 7,
    })
    expect(atOnce(luma.verify(arrived({}, 'a'), [], 7))).toMatchObject({ ok: false, cause: 'no_matching_secret' })
  })
})

test('a body of a depth that overflows a stack has no report', () => {
  expect(luma.parse(JSON.parse(deepJson('id')))).toMatchObject({ kind: 'unreadable', jobId: undefined })
})

const url = 'https://api.lumalabs.ai/dream-machine/v1'

describe('a poll', () => {
  test.each<[string, object, object]>([
    [
      'a video',
      generation,
      {
        kind: 'result',
        report: {
          status: 'COMPLETED',
          model: 'ray-2',
          createdAt: generation.created_at,
          media: [{ kind: 'video', position: 0, url: video }],
        },
      },
    ],
    [
      'a picture',
      { ...generation, assets: { image: 'https://a.test/1.jpg' } },
      { kind: 'result', report: { media: [{ kind: 'image', url: 'https://a.test/1.jpg' }] } },
    ],
    [
      'a failure',
      { ...generation, state: 'failed', failure_reason: 'moderated', assets: null },
      { kind: 'result', report: { status: 'FAILED', error: { code: 'failed', message: 'moderated' }, media: [] } },
    ],
    ['a queued one', { ...generation, state: 'queued' }, { kind: 'running', status: { status: 'IN_QUEUE' } }],
    ['a running one', { ...generation, state: 'dreaming' }, { kind: 'running', status: { status: 'IN_PROGRESS' } }],
    ['another one', { ...generation, id: 'other' }, { kind: 'invalid' }],
    ['no media', { ...generation, assets: { video: 7 } }, { kind: 'invalid' }],
    ['an unknown state', { ...generation, state: 'done' }, { kind: 'invalid' }],
  ])('that finds %s', async (_, json, outcome) => {
    const { api, calls } = apiOf(url, { status: 200, json })
    expect(await luma.fetchResult({ jobId, model: undefined }, api)).toMatchObject(outcome)
    expect(calls).toMatchObject([{ url: `${url}/generations/${jobId}`, headers: { authorization: 'Bearer key' } }])
  })

  test.each(junk)('answered %j is invalid', async (json) => {
    const { api } = apiOf(url, { status: 200, json })
    expect(await luma.fetchResult({ jobId, model: undefined }, api)).toMatchObject({ kind: 'invalid' })
  })
})

describe('a submit', () => {
  const submission = { input: { prompt: 'dog' }, webhookUrl: 'https://me.test/webhooks/l', idempotencyKey: 'k' }

  test.each([
    ['ray-2', 'video'],
    ['photon-1', 'image'],
  ])('of %s makes a %s', async (model, path) => {
    const { api, calls } = apiOf(url, { status: 201, json: { id: jobId, state: 'queued' } })
    expect(await luma.submit({ ...submission, model }, api)).toEqual({ kind: 'submitted', jobId, cost: undefined })
    expect(calls[0]?.url).toBe(`${url}/generations/${path}`)
    expect(JSON.parse(calls[0]?.body ?? '')).toEqual({
      prompt: 'dog',
      model,
      callback_url: 'https://me.test/webhooks/l',
    })
  })

  test.each<[unknown, { status: number; json?: unknown }, object]>([
    ['dog', { status: 201 }, { kind: 'refused' }],
    [{}, { status: 400, json: { detail: 'Invalid prompt' } }, { kind: 'refused', status: 400 }],
    [{}, { status: 503 }, { kind: 'unreachable' }],
  ])('of %j answered %j', async (input, answer, outcome) => {
    const { api } = apiOf(url, answer)
    expect(await luma.submit({ ...submission, model: 'ray-2', input }, api)).toMatchObject(outcome)
  })
})
