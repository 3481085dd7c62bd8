import type { PollOutcome } from '../../domain/poll-outcomes.ts'
import type { Request } from '../../queries/requests.ts'
import { duration, type Tone } from '../parts/parts.ts'

// What is known of a request, in words: ours beside what the last poll gave.

export type When = { now: Date; stuckAfterSeconds: number }

/** A word for a badge, and what it means. */
export type PollSummary = { word: string; tone?: Tone; text: string }

const pollWords: Partial<Record<PollOutcome, PollSummary>> = {
  not_found_yet: {
    word: 'not found',
    tone: 'warn',
    text: 'the keys that were tried do not know it, and others that could were not tried yet',
  },
  not_found: {
    word: 'not found',
    tone: 'warn',
    text: 'the provider does not know it under any of our keys; it may be too new, or belong to another account',
  },
  lost: {
    word: 'lost',
    tone: 'bad',
    text: 'the provider did not know it for a day, and it is not polled again by itself; a late webhook still lands',
  },
  unreachable: { word: 'unreachable', tone: 'bad', text: 'no usable answer came from the provider' },
  invalid: {
    word: 'unreadable',
    tone: 'bad',
    text: 'the provider answered something that is not in its own specification',
  },
  landing_failed: { word: 'not landed', tone: 'bad', text: 'it gave its result, and Postgres refused to store it' },
}

const postponedWords: Record<string, string> = {
  quota: "the key's calls of this minute are spent",
  rate_limited: 'the provider answered 429, and the key rests',
  rate_limit_spent: "the provider's own limit for the key is used up",
  unauthorized: 'the provider does not accept the API key (401)',
  provider_down: 'the provider did not answer others just before, so it is left alone for a moment',
  no_key: 'no key that may be used for calls is configured for it',
}

export function postponedBecause(reason: string): string {
  return Object.hasOwn(postponedWords, reason) ? (postponedWords[reason] ?? reason) : reason
}

/** The state at the provider, as far as polls and webhooks show it. */
export function pollSummaryOf({
  confirmed_at,
  poll_outcome,
  poll_detail,
  status,
  source,
  landed_at,
}: Request): PollSummary {
  if (confirmed_at !== null) return { word: status, text: "the provider's result says so" }
  if (poll_outcome === 'postponed')
    return { word: 'postponed', tone: 'warn', text: `postponed: ${postponedBecause(poll_detail ?? '')}` }
  if (poll_outcome === 'unauthorized' || poll_outcome === 'rate_limited')
    return { word: 'no answer', tone: 'warn', text: postponedBecause(poll_outcome) }
  if (poll_outcome === 'running') return { word: landed_at === null ? status : 'running', text: 'not ended yet' }
  if (poll_outcome === 'result')
    return { word: 'answered', tone: 'warn', text: 'it gave a result that was not taken over' }
  const known = poll_outcome === null ? undefined : pollWords[poll_outcome]
  if (known) return poll_detail === null ? known : { ...known, text: `${known.text}: ${poll_detail}` }
  if (landed_at !== null && source === 'webhook')
    return { word: status, text: "its webhook says so; the provider's result was not taken over yet" }
  return { word: 'not polled', tone: '', text: 'it was not polled yet' }
}

/** For how long it is overdue; undefined while it is not overdue. */
export function overdueBy({ overdue, tracked_at }: Request, { now, stuckAfterSeconds }: When): string | undefined {
  return overdue ? duration(Math.max(0, now.getTime() - Date.parse(tracked_at) - stuckAfterSeconds * 1000)) : undefined
}

/** From its end at the provider to its landing here; both clocks count. */
export function driftOf({ completed_at, landed_at }: Request): { short: string; text: string } | undefined {
  if (completed_at === null || landed_at === null) return undefined
  const milliseconds = Date.parse(landed_at) - Date.parse(completed_at)
  if (milliseconds < 0)
    return {
      short: `−${duration(-milliseconds)}`,
      text: `it landed here ${duration(-milliseconds)} before its end at the provider: the clocks differ`,
    }
  return {
    short: `+${duration(milliseconds)}`,
    text: `it landed here ${duration(milliseconds)} after its end at the provider`,
  }
}

/** When it is polled next; words where there is no such time. */
export function nextPoll(
  { next_poll_at, landed_at, tracked_at, poll_outcome }: Request,
  { stuckAfterSeconds }: Pick<When, 'stuckAfterSeconds'>,
): { at: string } | { never: string } {
  if (next_poll_at !== null) return { at: next_poll_at }
  if (poll_outcome === 'lost') return { never: 'given up: it was not known for a day' }
  if (landed_at !== null) return { never: 'none: everything is known' }
  return { at: new Date(Date.parse(tracked_at) + stuckAfterSeconds * 1000).toISOString() }
}

export const mediaCounts = {
  image: ['picture', 'pictures'],
  video: ['video', 'videos'],
  audio: ['audio', 'audios'],
} as const

/** `4 of 4`; a webhook carries only the first, and not how many there are. */
export function mediaCount({
  media_items,
  media_complete,
  status,
}: Request): { short: string; text: string } | undefined {
  if (status !== 'COMPLETED') return undefined
  if (media_complete) return { short: `${media_items} of ${media_items}`, text: 'all of its media are known' }
  return {
    short: `${media_items} of ?`,
    text: "only what its webhook carried is known; the provider's result has the rest",
  }
}

export function wholeMedia(items: number): string {
  return items === 1 ? 'all that it made, one item, is known' : `all ${items} of its media are known`
}

/** One sentence that says how it stands. */
export function summaryOf(request: Request, when: When): string {
  const { landed_at, status, error_code, media_items, media_complete, contradiction } = request
  if (landed_at === null) {
    const late = overdueBy(request, when)
    const open =
      late === undefined
        ? 'It has not ended yet, and is not overdue.'
        : `It is overdue by ${late}: neither a webhook nor a result of it has come.`
    return `${open} Last poll: ${pollSummaryOf(request).text}.`
  }
  const drift = driftOf(request)
  const end =
    status === 'COMPLETED'
      ? `It is completed, and ${media_complete ? wholeMedia(media_items) : 'only what its webhook carried is known so far'}`
      : status === 'FAILED'
        ? `It failed${error_code === null ? '' : ': see the error below'}`
        : 'It was canceled'
  const doubt = contradiction ? ' A later webhook contradicts this: the deliveries below show which.' : ''
  return `${end}${drift === undefined ? '' : `; ${drift.text}`}.${doubt}`
}
