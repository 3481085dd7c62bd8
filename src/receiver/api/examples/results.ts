import type { FeedPage } from '../../queries/feed.ts'
import type { CallExamples } from './call-examples.ts'
import { idempotencyKey, landedAt, media, position, requestId, result } from './story.ts'

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

export const results: Record<string, CallExamples> = {
  showResult: { 200: result },
  readFeed: { 200: page },
}
