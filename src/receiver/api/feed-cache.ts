import { maxPageBytes } from '../domain/page-limits.ts'
import type { FeedItem, FeedPage } from '../queries/feed.ts'

export type FeedCache = {
  /** Returns the page after a position if it was read a moment ago. */
  after: (position: number, limit: number) => FeedPage | undefined
  /** Caches a page that was read after a position, if it continues the cache. Returns the page. */
  keep: (after: number, page: FeedPage) => FeedPage
}

type Kept = { item: FeedItem; bytes: number; readAt: number }

/**
 * Caches the changes that were read last, so that readers at about the same position share one read. Bounded in time,
 * in items, and in bytes to one page.
 */
export function createFeedCache(now: () => number = () => performance.now()): FeedCache {
  let kept: Kept[] = []
  /** No change is missing between this position and the last one. */
  let from = 0
  let head = 0

  const forget = () => {
    let gone = 0
    let bytes = kept.reduce((sum, one) => sum + one.bytes, 0)
    while (gone < kept.length) {
      const oldest = kept[gone]
      // Items include their result's row, so they are not reused for longer.
      if (!oldest || (oldest.readAt > now() - 1000 && bytes <= maxPageBytes && kept.length - gone <= 2000)) break
      bytes -= oldest.bytes
      from = oldest.item.position
      gone += 1
    }
    if (gone > 0) kept = kept.slice(gone)
  }

  return {
    after: (position, limit) => {
      forget()
      const last = kept.at(-1)?.item.position
      if (last === undefined || position < from || position >= last) return undefined
      const data = kept
        .filter(({ item }) => item.position > position)
        .slice(0, limit)
        .map(({ item }) => item)
      return { data, next_after: data.at(-1)?.position ?? position, head }
    },
    keep: (after, page) => {
      forget()
      head = Math.max(head, page.head)
      const last = kept.at(-1)?.item.position
      const isNext = last !== undefined && after >= from && after <= last
      if (!isNext && page.data.length > 0 && after >= (last ?? 0)) {
        kept = []
        // After 0 the page starts at the oldest kept change. A reader before that must get position_expired.
        from = after === 0 ? (page.data[0]?.position ?? after) : after
      } else if (!isNext) return page
      const end = kept.at(-1)?.item.position ?? after
      const readAt = now()
      for (const item of page.data) {
        if (item.position > end) kept.push({ item, bytes: JSON.stringify(item).length, readAt })
      }
      forget()
      return page
    },
  }
}
