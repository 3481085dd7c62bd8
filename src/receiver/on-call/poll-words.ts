import type { PollOutcome } from '../domain/poll-endings.ts'

const texts: Partial<Record<PollOutcome, string>> = {
  running: 'still running',
  not_found_yet: 'no key that was tried knows it, and others were not tried yet',
  not_found: 'no key that was tried knows it; it may be too new or belong to another account',
  lost: 'the provider still did not know it a day after it was tracked, so polling stopped; a late webhook still lands',
  unreachable: 'the provider gave no usable answer',
  invalid: 'the answer does not follow the specification of the API',
  landing_failed: 'the provider gave its result, and Postgres refused to store it',
}

const postponedWords: Record<string, string> = {
  quota: 'the calls that such polls may use in this minute are used up',
  rate_limited: 'the provider answered 429, so the key pauses',
  rate_limit_spent: "the provider's rate limit for the key is used up",
  unauthorized: 'the provider refuses the API key (401 or 403)',
  provider_down: 'the provider gave no usable answer, so calls pause for a moment',
  no_key: 'no configured key of its source and environment may make calls for it',
  stopping: 'the receiver was stopped before the answer came',
}

export function postponedBecause(reason: string): string {
  return Object.hasOwn(postponedWords, reason) ? (postponedWords[reason] ?? reason) : reason
}

/** The outcome of a poll of a request without a result, as a part of a sentence. */
export function pollText(outcome: PollOutcome, detail: string | null): string {
  if (outcome === 'postponed') return `postponed: ${postponedBecause(detail ?? '')}`
  const text = texts[outcome]
  if (text === undefined) return postponedBecause(outcome)
  if (detail === null || outcome === 'running') return text
  return `${text}: ${outcome === 'not_found_yet' ? postponedBecause(detail) : detail}`
}
