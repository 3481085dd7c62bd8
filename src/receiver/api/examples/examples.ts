import type { Costs } from '../../queries/costs.ts'
import type { FeedPage } from '../../queries/feed.ts'
import type { CallExamples } from './call-examples.ts'
import { generations } from './generations.ts'
import { at, input, model, idempotencyKey, keyName, landedAt, media, position, requestId, result } from './story.ts'

const entry = { slug: model, type: 'image', name: 'Aurora', capabilities: ['text-to-image'] }
const inputSchema = {
  prompt: { type: 'string', required: true },
  aspect_ratio: { type: 'string', enum: ['1:1', '16:9', '9:16'], default: '1:1' },
}

const provider: Record<string, CallExamples> = {
  listModels: { 200: { data: [{ ...entry, pricing: { credits: 4 } }] } },
  showModel: { 200: { ...entry, input_schema: inputSchema, pricing: { credits_base: 4 } } },
  showCosts: {
    200: {
      by: 'model',
      data: [{ group: model, requests: 8, credits_settled: 28, credits_reserved: 4 }],
      others: { requests: 0, credits_settled: 0, credits_reserved: 0 },
      total: { requests: 8, credits_settled: 28, credits_reserved: 4 },
    } satisfies Costs,
  },
  estimateGeneration: { body: { input }, 200: { credits: 4 } },
  showAccount: {
    200: { account_id: 'acme', balance: { credits: 9968 }, usage_30d: { requests: 8, credits_spent: 32 } },
  },
}

const page = {
  data: [
    {
      position,
      request_id: requestId,
      idempotency_key: idempotencyKey,
      status: 'COMPLETED',
      media_complete: true,
      changed_at: landedAt,
      result,
      media: [media],
    },
  ],
  next_after: position,
  head: position,
} satisfies FeedPage

const results: Record<string, CallExamples> = {
  showResult: { 200: result },
  readFeed: { 200: page },
}

const onCall: Record<string, CallExamples> = {
  replayDelivery: { body: { dry_run: true } },
  replayDeliveries: {
    body: { filter: { state: 'processed', key_name: keyName, since: at('03:00:00') }, dry_run: true },
  },
  muteIssue: { body: { minutes: 60 } },
}

/** The examples by operationId: of every body, and of the answers that services read. */
export const examples: Readonly<Record<string, CallExamples>> = {
  ...generations,
  ...provider,
  ...results,
  ...onCall,
}
