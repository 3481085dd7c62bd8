import { z } from 'zod'

const share = z.number().min(0).max(1)
const seconds = z.number().min(0).max(3600)

/**
 * Faults of a sandbox key (decisions, faults on demand), so that a team can rehearse failures of production. A share
 * is the part of requests, or of webhook attempts, that has the fault.
 */
export const faultsSchema = z.strictObject({
  /** Ends FAILED. */
  failed: share.optional(),
  /** Ends CANCELED, which no webhook carries. */
  canceled: share.optional(),
  /** The webhook is never sent. */
  drop: share.optional(),
  /** The webhook is sent twice. */
  duplicate: share.optional(),
  /** An attempt's signature is wrong. */
  bad_signature: share.optional(),
  /** The answer with the result breaks off in the middle. */
  truncated: share.optional(),
  /** The generation takes this long. */
  slow_seconds: seconds.optional(),
  /** The webhook comes this much later. */
  late_seconds: seconds.optional(),
})
export type Faults = z.infer<typeof faultsSchema>

/** Whether a share applies this time; `random` in [0, 1), so that 0 never does and 1 always. */
export function strikes(shareOfAll: number | undefined, random: () => number): boolean {
  return shareOfAll !== undefined && random() < shareOfAll
}

/**
 * Draws once whether a request fails or is canceled: both are shares of the same requests. `failed` comes first if they
 * add up to more than 1.
 */
export function badEndingOf(faults: Faults | null, random: () => number): 'failed' | 'canceled' | undefined {
  const { failed = 0, canceled = 0 } = faults ?? {}
  const drawn = random()
  if (drawn < failed) return 'failed'
  return drawn < failed + canceled ? 'canceled' : undefined
}
