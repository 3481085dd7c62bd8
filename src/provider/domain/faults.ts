import { z } from 'zod'

const share = z.number().min(0).max(1)
const seconds = z.number().min(0).max(3600)

/**
 * Faults of a sandbox key (decisions, faults on demand), to rehearse production failures. A share is the part of
 * requests or webhook attempts with the fault.
 */
export const faultsSchema = z.strictObject({
  /** Part of requests that end FAILED. */
  failed: share.optional(),
  /** Part of requests that end CANCELED, for which no webhook is sent. */
  canceled: share.optional(),
  /** Part of webhooks that are never sent. */
  drop: share.optional(),
  /** Part of webhooks that are sent twice. */
  duplicate: share.optional(),
  /** Part of attempts with a wrong signature. */
  bad_signature: share.optional(),
  /** Part of answers to `GET /v1/requests/{request_id}` that are cut off in the middle. */
  truncated: share.optional(),
  /** Extra duration of a generation. */
  slow_seconds: seconds.optional(),
  /** Delay of the webhook. */
  late_seconds: seconds.optional(),
})
export type Faults = z.infer<typeof faultsSchema>

/** True if a share applies this time. `random` is in [0, 1), so 0 never applies and 1 always does. */
export function strikes(shareOfAll: number | undefined, random: () => number): boolean {
  return shareOfAll !== undefined && random() < shareOfAll
}

/**
 * Draws once whether a request fails or is canceled, because both are shares of the same requests. `failed` wins if
 * they sum to more than 1.
 */
export function badEndingOf(faults: Faults | null, random: () => number): 'failed' | 'canceled' | undefined {
  const { failed = 0, canceled = 0 } = faults ?? {}
  const drawn = random()
  if (drawn < failed) return 'failed'
  return drawn < failed + canceled ? 'canceled' : undefined
}
