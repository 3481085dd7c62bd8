import type { Tone } from '../../../platform/pages/parts.ts'
import { type PollOutcome, pollEndings, type ManualPollAnswer, type PollEnding } from '../../domain/poll-endings.ts'
import { pollText } from '../../on-call/poll-words.ts'
import type { Request } from '../../queries/requests.ts'
import { duration } from '../parts/parts.ts'
import type { When } from '../parts/shell.ts'

// Sentences about a request: its state here, and the answer of the last poll.

const pollWords: Partial<Record<PollOutcome, { word: string; tone: Tone }>> = {
  not_found_yet: { word: 'not found', tone: 'warn' },
  not_found: { word: 'not found', tone: 'warn' },
  lost: { word: 'lost', tone: 'bad' },
  unreachable: { word: 'unreachable', tone: 'bad' },
  invalid: { word: 'unreadable', tone: 'bad' },
  landing_failed: { word: 'not landed', tone: 'bad' },
  postponed: { word: 'poll postponed', tone: 'warn' },
  unauthorized: { word: 'no answer', tone: 'warn' },
  rate_limited: { word: 'no answer', tone: 'warn' },
}

/** The state at the provider, as far as polls and webhooks show it: a word for a badge, with its meaning. */
export function pollSummaryOf(request: Request): { word: string; tone?: Tone; text: string } {
  const { confirmed_at, poll_outcome, poll_detail, status, source: way, landed_at } = request
  if (confirmed_at !== null) return { word: status, text: "the provider's own result is known" }
  if (poll_outcome === 'running') return { word: landed_at === null ? status : 'running', text: 'still running' }
  if (poll_outcome === 'result')
    return { word: 'answered', tone: 'warn', text: 'the provider gave a result that was not applied' }
  const known = poll_outcome === null ? undefined : pollWords[poll_outcome]
  if (known && poll_outcome !== null) return { ...known, text: pollText(poll_outcome, poll_detail) }
  if (landed_at !== null && way === 'webhook')
    return { word: status, text: "known from its webhook; the provider's own result is not known yet" }
  return { word: 'not polled', tone: '', text: 'never' }
}

/** How far the provider is with an open request, as the last poll saw it; undefined if unknown. */
export function progressOf({ landed_at, status, progress, queue_position }: Request): string | undefined {
  if (landed_at !== null) return undefined
  if (status === 'IN_QUEUE' && queue_position !== null) return `position ${queue_position}`
  if (status === 'IN_PROGRESS' && progress !== null) return `${progress}\u00a0%`
  return undefined
}

/** How long a request has been overdue; undefined while it is not. */
export function overdueBy({ overdue, tracked_at }: Request, { now, stuckAfterSeconds }: When): string | undefined {
  return overdue ? duration(Math.max(0, now.getTime() - Date.parse(tracked_at) - stuckAfterSeconds * 1000)) : undefined
}

/** The time from the end at the provider to the landing here, by the clocks of both; undefined if one is unknown. */
export function delayOf({ completed_at, landed_at }: Request): string | undefined {
  if (completed_at === null || landed_at === null) return undefined
  const milliseconds = Date.parse(landed_at) - Date.parse(completed_at)
  if (milliseconds >= 0) return `landed ${duration(milliseconds)} after its end at the provider`
  return `landed ${duration(-milliseconds)} before its end at the provider: the clocks differ`
}

/** The time of the next poll, or the reason why there is none. */
export function nextPoll(
  { next_poll_at, landed_at, tracked_at, poll_outcome }: Request,
  { stuckAfterSeconds }: Pick<When, 'stuckAfterSeconds'>,
): { at: string } | { never: string } {
  if (next_poll_at !== null) return { at: next_poll_at }
  if (poll_outcome === 'lost') return { never: 'none: polling stopped after a day' }
  if (landed_at !== null) return { never: 'none: the whole result is known' }
  return { at: new Date(Date.parse(tracked_at) + stuckAfterSeconds * 1000).toISOString() }
}

export const mediaCounts = {
  image: ['picture', 'pictures'],
  video: ['video', 'videos'],
  audio: ['audio', 'audios'],
} as const

/** `4 of 4`, or `4 of 4, 1 gone` without a copy of one. A webhook carries only the first item and not their number. */
export function mediaCount({ media_items, media_gone, media_complete, status }: Request): string | undefined {
  if (status !== 'COMPLETED') return undefined
  const gone = media_gone === 0 ? '' : `, ${media_gone} gone`
  return `${media_items} ${media_complete ? `of ${media_items}` : 'so far'}${gone}`
}

// The answer to “Ask the provider now”, and of the poll after a cancellation. The address contains it, so a copied link
// shows it.

type Answer = ManualPollAnswer | 'landed' | 'completed' | 'confirmed' | 'unchanged' | 'busy' | 'cancel_asked'

/** Returns the answer to a poll. `ending` is undefined if another transaction locked the row. */
export function answerOf(ending: PollEnding | undefined, before: Request, after: Request): Answer {
  if (ending === undefined) return 'busy'
  const { manual } = pollEndings[ending]
  if (manual !== 'compared') return manual
  if (after.status !== before.status || before.landed_at === null) return 'landed'
  if (after.confirmed_at === before.confirmed_at) return 'unchanged'
  return before.media_complete && after.media_items === before.media_items ? 'confirmed' : 'completed'
}

type Words = { good: boolean; text: string }
const good = (text: string): Words => ({ good: true, text })
const bad = (text: string): Words => ({ good: false, text })

const words: Record<Answer, (request: Request, summary: string) => Words> = {
  landed: ({ status }) => good(`The provider's result landed: the request is now ${status}.`),
  completed: ({ status, media_items: items }) =>
    good(`The provider's result lists ${items} media ${items === 1 ? 'item' : 'items'}. The status stays ${status}.`),
  confirmed: ({ status }) => good(`The provider's result agrees with the webhook: ${status}. Its times were added.`),
  unchanged: ({ status }) => good(`Nothing changed: the provider's result was known already, ${status}.`),
  running: () => good('Nothing changed: it is still running at the provider. The next poll is shown below.'),
  not_found: (_, summary) =>
    bad(`Nothing changed: ${summary}. Check the id, and that the key of its account is configured.`),
  failed: (_, summary) => bad(`Nothing changed: ${summary}. Polling continues automatically.`),
  postponed: (_, summary) =>
    bad(`Nothing changed, and the poll was ${summary}. The Keys page shows the calls and pauses of each key.`),
  busy: () => bad('Not polled: another transaction holds this request. Ask again in a few seconds.'),
  cancel_asked: () => good('The source was asked to cancel it. It may still complete; the next poll is shown below.'),
}

export function parseAnswer(text: string | undefined): Answer | undefined {
  return text !== undefined && isAnswer(text) ? text : undefined
}

function isAnswer(text: string): text is Answer {
  return Object.hasOwn(words, text)
}

export function manualPollWords(answer: Answer, request: Request): Words {
  return words[answer](request, pollSummaryOf(request).text)
}
