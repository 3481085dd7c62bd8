import { randomUUID } from 'node:crypto'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { createFeedCache } from '../../../src/receiver/api/feed-cache.ts'
import { maxPageBytes } from '../../../src/receiver/domain/page-limits.ts'
import type { FeedItem, FeedPage } from '../../../src/receiver/queries/feed.ts'

const itemAt = (position: number, output: unknown = null): FeedItem => ({
  position,
  request_id: randomUUID(),
  idempotency_key: null,
  status: 'COMPLETED',
  media_complete: true,
  changed_at: new Date(0).toISOString(),
  result: {
    request_id: randomUUID(),
    status: 'COMPLETED',
    model: null,
    output,
    media_complete: true,
    cost: null,
    error_code: null,
    error_message: null,
    created_at: new Date(0).toISOString(),
    completed_at: null,
    landed_at: null,
    source: null,
    key_name: null,
    sandbox: null,
    metadata: null,
    idempotency_key: null,
    progress: 100,
    queue_position: null,
    source_name: 'generation-queue',
    external_id: randomUUID(),
  },
  media: [],
})

it('returns the next changes or nothing, for any order of reads', () => {
  const step = fc.oneof(
    fc.record({ kind: fc.constant('grow' as const), by: fc.nat({ max: 5 }) }),
    fc.record({
      kind: fc.constant('read' as const),
      reader: fc.nat({ max: 3 }),
      limit: fc.integer({ min: 1, max: 6 }),
    }),
    fc.record({ kind: fc.constant('jump' as const), reader: fc.nat({ max: 3 }), back: fc.nat({ max: 30 }) }),
    fc.record({ kind: fc.constant('wait' as const), ms: fc.nat({ max: 1500 }) }),
    fc.record({ kind: fc.constant('prune' as const), items: fc.integer({ min: 1, max: 5 }) }),
  )
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      let now = 0
      const feed: FeedItem[] = []
      let pruned: FeedItem[] = []
      const recent = createFeedCache(() => now)
      const places = [0, 0, 0, 0]
      const fromFeed = (after: number, limit: number): FeedPage => {
        const data = feed
          .slice(pruned.length)
          .filter(({ position }) => position > after)
          .slice(0, limit)
        return { data, next_after: data.at(-1)?.position ?? after, head: feed.at(-1)?.position ?? 0 }
      }
      for (const taken of steps) {
        if (taken.kind === 'grow')
          for (let n = 0; n < taken.by; n += 1) feed.push(itemAt((feed.at(-1)?.position ?? 100) + 1 + (n % 3)))
        else if (taken.kind === 'wait') now += taken.ms
        else if (taken.kind === 'prune') pruned = feed.slice(0, Math.min(feed.length, pruned.length + taken.items))
        else if (taken.kind === 'jump') places[taken.reader] = Math.max(0, (places[taken.reader] ?? 0) - taken.back)
        else {
          const after = places[taken.reader] ?? 0
          const prunedTo = pruned.at(-1)?.position ?? 0
          const known = recent.after(after, taken.limit)
          // Postgres says of a place that is gone that it is, unless that is the beginning.
          if (!known && after > 0 && after < prunedTo) {
            places[taken.reader] = 0
            continue
          }
          const page = known ?? recent.keep(after, fromFeed(after, taken.limit))
          // Of what is handed on there may be less than there is, and never something else.
          const open =
            after === 0
              ? feed.filter(({ position }) => position >= (page.data[0]?.position ?? 0))
              : feed.filter(({ position }) => position > after)
          expect(page.data).toEqual(open.slice(0, page.data.length))
          if (known) expect(known.data.length).toBeGreaterThan(0)
          expect(page.next_after).toBe(page.data.at(-1)?.position ?? after)
          places[taken.reader] = page.next_after
        }
      }
    }),
    { numRuns: 3000 },
  )
})

it('returns nothing that was read more than a second ago, and at most a page', () => {
  let now = 0
  const recent = createFeedCache(() => now)
  const pageOf = (...data: FeedItem[]): FeedPage => ({ data, next_after: data.at(-1)?.position ?? 0, head: 9 })
  recent.keep(0, pageOf(itemAt(1), itemAt(2)))
  // Pruning may change the beginning at any time.
  expect(recent.after(0, 5)).toBeUndefined()
  expect(recent.after(1, 5)?.data).toHaveLength(1)
  now = 1000
  expect(recent.after(1, 5)).toBeUndefined()
  const large = 'x'.repeat(maxPageBytes * 0.4)
  recent.keep(2, pageOf(itemAt(3, large), itemAt(4, large), itemAt(5, large)))
  expect(recent.after(2, 5)).toBeUndefined()
  expect(recent.after(3, 5)?.data).toHaveLength(2)
})
