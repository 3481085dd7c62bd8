import { createPoster, type Poster, type PostingOptions } from '../../platform/outward/poster.ts'
import { diallingOf } from '../../platform/outward/public-url.ts'

export type WebhookPostingOptions = Omit<PostingOptions, 'judge'> & {
  /** Origins exempt from the https and address rules. */
  allow: readonly string[]
}

/** Creates the poster of webhooks to URLs that callers chose. */
export function createWebhookPoster({ allow, ...options }: WebhookPostingOptions): Poster {
  return createPoster({ ...options, judge: (url) => diallingOf(url, allow) })
}
