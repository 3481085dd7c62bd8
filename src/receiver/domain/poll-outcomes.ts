/**
 * The outcomes of a poll; `poll_detail` adds to them.
 *
 * - `result`: the provider's result. `running`: not finished.
 * - `not_found`: the provider does not know the request. `lost`: the same, a day after it was tracked or landed.
 * - `not_found_yet`: the same, and a key that may know the request has not been tried.
 * - `unreachable`, `invalid`: no usable answer.
 * - `unauthorized`, `rate_limited`: no usable answer, in the log `polls`. The request shows `postponed` then.
 * - `landing_failed`: the result could not be written.
 * - `postponed`: no call was made, or a key was refused or limited. A later poll decides.
 */
export const pollOutcomes = [
  'result',
  'running',
  'not_found',
  'not_found_yet',
  'lost',
  'unreachable',
  'invalid',
  'unauthorized',
  'rate_limited',
  'landing_failed',
  'postponed',
] as const
export type PollOutcome = (typeof pollOutcomes)[number]
