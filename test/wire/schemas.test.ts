import { describe, expect, it } from 'vitest'
import type { z } from 'zod'
import * as schema from '../../src/wire/schemas.ts'

const id = '0b6f7a52-93a7-4b53-8f0e-3d7a2b1c9e44'
const created = '2026-01-01T00:00:00.000Z'
const image = { url: 'https://media.test/a.png', width: 640, height: 480 }
const ok = (output: unknown, more: object = {}) => ({
  request_id: id,
  status: 'OK',
  payload: { model: 'aurora-image', output, cost: 4, ...more },
})
const failure = { request_id: id, status: 'ERROR', error: { code: 'GENERATION_FAILED', message: 'the model gave up' } }
const completed = {
  request_id: id,
  status: 'COMPLETED',
  model: 'm',
  output: { images: [image] },
  cost: 0.5,
  created_at: created,
  completed_at: created,
}
const statusBody = { request_id: id, status: 'IN_PROGRESS', queue_position: null, progress: 40, logs: [] }
const link = (end: string) => `https://api.test/v1/requests/${id}${end}`
const submitted = {
  request_id: id,
  status: 'IN_QUEUE',
  queue_position: 0,
  status_url: link('/status'),
  response_url: link(''),
  cancel_url: link('/cancel'),
  cost: 4,
}

/** The examples of one schema: what the spec shows, and what it rules out. */
type Examples = { schema: z.ZodType; taken: Record<string, unknown>; refused: Record<string, unknown> }

const examples: Record<string, Examples> = {
  notificationSchema: {
    schema: schema.notificationSchema,
    taken: {
      'one picture': ok({ images: [{ url: image.url }] }),
      video: ok({ video: { url: 'https://media.test/a.mp4' } }),
      audio: ok({ audio: { url: 'https://media.test/a.mp3' } }),
      '100 pictures': ok({ images: Array.from({ length: 100 }, () => ({ url: 'x'.repeat(8192) })) }),
      'a cost of nothing': ok({ images: [{ url: image.url }] }, { cost: 0 }),
      'a cost with decimals': ok({ images: [{ url: image.url }] }, { cost: 0.25 }),
      'a failure': failure,
      'members that are new to us': { ...failure, attempt: 2, error: { ...failure.error, hint: 'x' } },
    },
    refused: {
      'no object': 'OK',
      null: null,
      'no status': { request_id: id, payload: ok({}).payload },
      'a state of the REST API': { ...failure, status: 'FAILED' },
      'lower case': { ...failure, status: 'error' },
      'no request_id': { ...failure, request_id: undefined },
      'a request_id that is not a uuid': { ...failure, request_id: '42' },
      'a number for request_id': { ...failure, request_id: 42 },
      'OK without payload': { request_id: id, status: 'OK' },
      'OK with the error of a failure': { ...failure, status: 'OK' },
      'ERROR without error': { request_id: id, status: 'ERROR' },
      'ERROR without a code': { ...failure, error: { message: 'x' } },
      'no picture': ok({ images: [] }),
      'more than 100 pictures': ok({ images: Array.from({ length: 101 }, () => ({ url: image.url })) }),
      'an endless url': ok({ images: [{ url: 'x'.repeat(8193) }] }),
      'a picture without url': ok({ images: [{}] }),
      'an empty url': ok({ images: [{ url: '' }] }),
      'no kind of output': ok({}),
      'an unknown kind of output': ok({ model3d: { url: image.url } }),
      'a cost below nothing': ok({ images: [{ url: image.url }] }, { cost: -1 }),
      'a cost in words': ok({ images: [{ url: image.url }] }, { cost: '4' }),
      'no cost': ok({ images: [{ url: image.url }] }, { cost: undefined }),
      'no model': ok({ images: [{ url: image.url }] }, { model: undefined }),
    },
  },
  resultSchema: {
    schema: schema.resultSchema,
    taken: {
      completed,
      'several pictures, one with its original': {
        ...completed,
        output: { images: [image, { ...image, original_url: 'https://media.test/o.png' }] },
      },
      video: { ...completed, output: { video: { ...image, duration: 4.5 } } },
      audio: { ...completed, output: { audio: { url: image.url, duration: 3 } } },
      'audio as the webhook shows it': { ...completed, output: { audio: { url: image.url } } },
      'a time with an offset': { ...completed, created_at: '2026-01-01T01:00:00+01:00' },
      failed: { request_id: id, status: 'FAILED', error: failure.error, cost: 0 },
      'failed, with other fields': { ...completed, status: 'FAILED', error: failure.error, cost: 0, output: undefined },
      canceled: { request_id: id, status: 'CANCELED' },
      'canceled, with other fields': { ...completed, status: 'CANCELED', cost: 0 },
    },
    refused: {
      'a state that is not terminal': { ...completed, status: 'IN_PROGRESS' },
      'completed without output': { ...completed, output: undefined },
      'completed without a time': { ...completed, completed_at: undefined },
      'an invalid time': { ...completed, completed_at: 'yesterday' },
      'a picture without width': { ...completed, output: { images: [{ url: image.url, height: 1 }] } },
      'a picture of no width': { ...completed, output: { images: [{ ...image, width: 0 }] } },
      'half a pixel': { ...completed, output: { images: [{ ...image, width: 640.5 }] } },
      'a video without duration': { ...completed, output: { video: image } },
      'failed, and paid for': { request_id: id, status: 'FAILED', error: failure.error, cost: 4 },
      'failed without error': { request_id: id, status: 'FAILED', cost: 0 },
    },
  },
  statusBodySchema: {
    schema: schema.statusBodySchema,
    taken: {
      running: statusBody,
      queued: { ...statusBody, status: 'IN_QUEUE', queue_position: 3, progress: 0 },
      'with logs': { ...statusBody, logs: ['warming up'] },
      'progress 100': { ...statusBody, status: 'COMPLETED', progress: 100 },
    },
    refused: {
      'an unknown state': { ...statusBody, status: 'DONE' },
      'a position below 0': { ...statusBody, queue_position: -1 },
      'half a position': { ...statusBody, queue_position: 0.5 },
      'progress over 100': { ...statusBody, progress: 101 },
      'no logs': { ...statusBody, logs: undefined },
    },
  },
  submittedSchema: {
    schema: schema.submittedSchema,
    taken: {
      queued: submitted,
      sandbox: { ...submitted, status: 'COMPLETED' },
      'no position': { ...submitted, queue_position: null },
    },
    refused: {
      'a relative link': { ...submitted, status_url: '/v1/requests/x/status' },
      'no cost': { ...submitted, cost: undefined },
      'a request_id that is not a uuid': { ...submitted, request_id: 'x' },
    },
  },
  submitBodySchema: {
    schema: schema.submitBodySchema,
    taken: {
      'input alone': { input: {} },
      'with a webhook_url': { input: { prompt: 'x', duration: 4 }, webhook_url: 'https://example.com/hook' },
    },
    refused: {
      'no input': {},
      'an input that is not an object': { input: 'x' },
      'a list': { input: [] },
      'a webhook_url that is not a string': { input: {}, webhook_url: 1 },
      'a member of another name': { input: {}, webhookUrl: 'https://example.com/hook' },
    },
  },
  errorEnvelopeSchema: {
    schema: schema.errorEnvelopeSchema,
    taken: { 'the envelope': { error: { type: 'invalid_request_error', code: 'not_found', message: 'unknown' } } },
    refused: {
      'no envelope': { type: 'a', code: 'b', message: 'c' },
      'no code': { error: { type: 'a', message: 'c' } },
    },
  },
  accountSchema: {
    schema: schema.accountSchema,
    taken: {
      'an account': { account_id: 'a', balance: { credits: 12.5 }, usage_30d: { requests: 3, credits_spent: 4.5 } },
    },
    refused: {
      'half a request': { account_id: 'a', balance: { credits: 1 }, usage_30d: { requests: 0.5, credits_spent: 1 } },
      'no balance': { account_id: 'a' },
    },
  },
  catalogEntrySchema: {
    schema: schema.catalogEntrySchema,
    taken: {
      'a model': {
        slug: 's',
        type: 'image',
        name: 'S',
        capabilities: ['text-to-image'],
        pricing: { credits: 4, note: 'per picture' },
      },
    },
    refused: { 'an unknown type': { slug: 's', type: 'text', name: 'S', capabilities: [], pricing: { credits: 4 } } },
  },
  modelSchema: {
    schema: schema.modelSchema,
    taken: {
      'the spec’s image-to-video model': {
        slug: 'v',
        type: 'video',
        name: 'V',
        capabilities: ['image-to-video'],
        input_schema: {
          image_url: { type: 'string', required: true },
          prompt: { type: 'string' },
          duration: { type: 'number', enum: [4, 8], default: 4 },
          resolution: { type: 'string', enum: ['480p', '720p', '1080p'], default: '720p' },
        },
        pricing: { credits_base: 10, multipliers: { resolution: { '480p': 0.5, '720p': 1, '1080p': 2 } } },
      },
    },
    refused: {
      'a descriptor of an unknown type': {
        slug: 'v',
        type: 'video',
        name: 'V',
        capabilities: [],
        input_schema: { a: { type: 'date' } },
        pricing: { credits_base: 1 },
      },
      'the price of a catalog entry': {
        slug: 'v',
        type: 'video',
        name: 'V',
        capabilities: [],
        input_schema: {},
        pricing: { credits: 1 },
      },
    },
  },
}

describe.each(Object.entries(examples))('%s', (_name, { schema: tested, taken, refused }) => {
  it.each(Object.entries(taken))('accepts %s', (_what, value) => {
    expect(tested.safeParse(value).error?.issues).toBeUndefined()
  })

  it.each(Object.entries(refused))('refuses %s', (_what, value) => {
    expect(tested.safeParse(value).success).toBe(false)
  })
})

describe('request_id', () => {
  it('is any UUID, in lower case as Postgres returns it', () => {
    expect(schema.requestIdSchema.parse(id.toUpperCase())).toBe(id)
    for (const uuid of [
      '00000000-0000-0000-0000-000000000000',
      'ffffffff-ffff-ffff-ffff-ffffffffffff',
      '018f4c2e-7b5a-7000-8000-000000000000',
    ])
      expect(schema.requestIdSchema.parse(uuid)).toBe(uuid)
  })

  it.each([
    ['braces', `{${id}}`],
    ['no hyphens', id.replaceAll('-', '')],
    ['urn', `urn:uuid:${id}`],
    ['a blank', ` ${id}`],
    ['a line break', `${id}\n`],
  ])('with %s is invalid', (_what, text) => {
    expect(schema.requestIdSchema.safeParse(text).success).toBe(false)
  })
})

it('knows exactly the five states of the spec', () => {
  expect(schema.requestStatuses).toEqual(['IN_QUEUE', 'IN_PROGRESS', 'COMPLETED', 'FAILED', 'CANCELED'])
})
