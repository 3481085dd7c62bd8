import type { Request } from '../../queries/requests.ts'
import type { ReconcileRun } from '../../reconciling/reconciler.ts'
import { pollSummaryOf, wholeMedia } from './request-words.ts'

// What came of a poll by hand: it stands in the address, so that it can be shown and sent on.

const ends = [
  'landed',
  'completed',
  'confirmed',
  'unchanged',
  'running',
  'not_found',
  'failed',
  'postponed',
  'busy',
] as const
export type ManualPollEnd = (typeof ends)[number]

/** What changed; `run` is undefined where another was polling at the same moment. */
export function endOf(run: ReconcileRun | undefined, before: Request, after: Request): ManualPollEnd {
  if (!run) return 'busy'
  if (run.postponed > 0) return 'postponed'
  if (run.running > 0) return 'running'
  if (run.notFound > 0) return 'not_found'
  if (run.failed > 0) return 'failed'
  if (after.status !== before.status || before.landed_at === null) return 'landed'
  if (after.confirmed_at === before.confirmed_at) return 'unchanged'
  return before.media_complete && after.media_items === before.media_items ? 'confirmed' : 'completed'
}

export function parseEnd(text: string | undefined): ManualPollEnd | undefined {
  return ends.find((end) => end === text)
}

export type ManualPollWords = { good: boolean; text: string }

export function manualPollWords(end: ManualPollEnd, request: Request): ManualPollWords {
  const summary = pollSummaryOf(request).text
  switch (end) {
    case 'landed':
      return { good: true, text: `The provider gave its result, and it landed: the request is now ${request.status}.` }
    case 'completed':
      return {
        good: true,
        text: `The provider gave its result. The state stayed ${request.status}; ${wholeMedia(request.media_items)} now.`,
      }
    case 'confirmed':
      return {
        good: true,
        text: `The provider's result agrees with the webhook, ${request.status}. It was taken over with the provider's times.`,
      }
    case 'unchanged':
      return {
        good: true,
        text: `The provider gave its result, and nothing changed: it stands here already, as ${request.status}.`,
      }
    case 'running':
      return {
        good: true,
        text: 'Nothing changed: the provider says that it has not ended. It is polled again by itself; see the next poll below.',
      }
    case 'not_found':
      return {
        good: false,
        text: `Nothing changed: ${summary}. Look whether the key of its account is configured, and whether the id is right.`,
      }
    case 'failed':
      return {
        good: false,
        text: `Nothing changed: ${summary}. Look at the provider's status; it is polled again by itself.`,
      }
    case 'postponed':
      return {
        good: false,
        text: `Nothing changed, and the poll was ${summary}. The page of keys shows until when; then ask again.`,
      }
    case 'busy':
      return {
        good: false,
        text: 'Not polled: another process is polling it at this moment. Reload this page in a few seconds.',
      }
    default:
      return end satisfies never
  }
}
