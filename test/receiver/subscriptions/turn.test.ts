import { setTimeout as delay } from 'node:timers/promises'
import { expect, it } from 'vitest'
import type { FeedItem } from '../../../src/receiver/queries/feed.ts'
import { sendPage, type Progress } from '../../../src/receiver/subscriptions/turn.ts'

it('stores its position during a page, so that little is repeated after a crash with a slow endpoint', async () => {
  const item = (position: number): FeedItem => ({
    position,
    request_id: `0000000${position % 2}-0000-4000-8000-000000000000`,
    idempotency_key: null,
    status: 'FAILED',
    media_complete: true,
    changed_at: new Date().toISOString(),
    result: null,
    media: [],
  })
  const saved: Progress[] = []
  const sent = await sendPage({
    items: [1, 2, 3, 4, 5, 6, 7, 9].map(item),
    from: { position: 0, ahead: [] },
    probes: false,
    mayBegin: () => true,
    // Those of one request are much slower.
    post: async ({ position }) => {
      await delay(position % 2 === 0 ? 1 : 260)
      return { outcome: 'accepted' }
    },
    save: async (progress) => void saved.push(progress),
  })
  expect(sent).toMatchObject({ position: 9, ahead: [], trouble: undefined })
  const [first] = saved
  expect(first?.position).toBeGreaterThan(0)
  expect(first?.position).toBeLessThan(9)
  expect(first?.ahead.every((position) => position > first.position + 1 && position % 2 === 0)).toBe(true)
})
