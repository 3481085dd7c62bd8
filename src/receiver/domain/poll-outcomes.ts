/**
 * What a poll of a request came to: its `result`, that it is `running`, `not_found` (`lost` after a day of that; `not_found_yet`
 * while a key that could know it was not tried), no usable answer (`unreachable`, `invalid`, `unauthorized`, `rate_limited`), a
 * result that could not be written (`landing_failed`), or that the poll was put off (`postponed`). The detail says more.
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
