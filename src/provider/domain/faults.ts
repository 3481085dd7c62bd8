import { z } from 'zod'

const share = z.number().min(0).max(1)
const seconds = z.number().min(0).max(3600)

/**
 * Faults of a sandbox key (decisions, faults on demand), to rehearse production failures. A share is a number from 0 to
 * 1: the part of requests, webhooks, attempts or answers with the fault.
 */
export const faultsSchema = z.strictObject({
  failed: share.optional().describe('Part of requests that end FAILED'),
  canceled: share.optional().describe('Part of requests that end CANCELED, for which no webhook is sent'),
  drop: share.optional().describe('Part of webhooks that are never sent'),
  duplicate: share.optional().describe('Part of webhooks that are sent twice'),
  bad_signature: share.optional().describe('Part of attempts with a wrong signature'),
  truncated: share.optional().describe('Part of answers to GET /v1/requests/{request_id} that are cut off'),
  slow_seconds: seconds.optional().describe('Extra duration of a generation'),
  late_seconds: seconds.optional().describe('Delay of the webhook'),
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
