import type { z } from 'zod'
import type { Request } from '../../queries/requests.ts'
import type { GenerationBody } from '../../submitting/submit.ts'
import type { trackBodySchema } from '../track.ts'
import type { CallExamples } from './call-examples.ts'
import * as story from './story.ts'

const { model, metadata, request, requestId, keyName, idempotencyKey, media } = story

const generation = {
  idempotency_key: idempotencyKey,
  state: 'submitted',
  request_id: requestId,
  status: 'IN_QUEUE',
  model,
  key_name: keyName,
  metadata,
  cost: 4,
  attempts: 1,
  next_attempt_at: null,
  last_error: null,
  answer: null,
  created_at: story.submittedAt,
}

/** The request before it has landed. */
const tracked = {
  ...request,
  status: 'IN_QUEUE',
  progress: null,
  media_items: 0,
  media_gone: 0,
  media_complete: false,
  first_media: null,
  cost: null,
  source: null,
  created_at: null,
  completed_at: null,
  landed_at: null,
  webhook_at: null,
  confirmed_at: null,
  polled_at: null,
  poll_outcome: null,
} satisfies Request

export const generations: Record<string, CallExamples> = {
  submitGeneration: {
    body: {
      idempotency_key: idempotencyKey,
      model,
      input: story.input,
      key_name: keyName,
      metadata,
    } satisfies GenerationBody,
    202: generation,
  },
  showGeneration: { 200: { ...generation, status: 'COMPLETED', result: story.result, media: [media] } },
  trackRequest: {
    body: { request_id: requestId, model, key_name: keyName, metadata } satisfies z.input<typeof trackBodySchema>,
    200: request,
    201: tracked,
  },
  listRequests: { 200: { data: [request], next_cursor: null } },
  cancelRequest: { 202: { outcome: 'asked', request: tracked } },
  reconcileRequest: {
    200: {
      scanned: 1,
      landed: 1,
      running: 0,
      not_found: 0,
      failed: 0,
      postponed: 0,
      request: { ...request, polls: 1, polled_at: story.at('03:06:00.231') },
    },
  },
}
