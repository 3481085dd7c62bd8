import type { Request } from '../../queries/requests.ts'
import type { ReconcileRun } from '../../reconciling/reconciler.ts'
import { pollSummaryOf } from './request-words.ts'

// The outcome of “Ask the provider now”, and of the poll after a cancellation. The address contains it, so a copied
// link shows it.

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
  'cancel_asked',
] as const
export type ManualPollEnd = (typeof ends)[number]

/** Compares the request before and after. `run` is undefined if another transaction locked the row. */
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

export function manualPollWords(end: ManualPollEnd, request: Request): { good: boolean; text: string } {
  const { status, media_items } = request
  const summary = pollSummaryOf(request).text
  const good = (text: string) => ({ good: true, text })
  const bad = (text: string) => ({ good: false, text })
  const words = {
    landed: good(`The provider's result landed: the request is now ${status}.`),
    completed: good(
      `The provider's result lists ${media_items} media ${media_items === 1 ? 'item' : 'items'}. The status stays ${status}.`,
    ),
    confirmed: good(`The provider's result agrees with the webhook: ${status}. Its times were added.`),
    unchanged: good(`Nothing changed: the provider's result was known already, ${status}.`),
    running: good('Nothing changed: it is still running at the provider. The next poll is shown below.'),
    not_found: bad(`Nothing changed: ${summary}. Check the id, and that the key of its account is configured.`),
    failed: bad(`Nothing changed: ${summary}. Polling continues automatically.`),
    postponed: bad(
      `Nothing changed, and the poll was ${summary}. The Keys page shows the calls and pauses of each key.`,
    ),
    busy: bad('Not polled: another transaction holds this request. Ask again in a few seconds.'),
    cancel_asked: good('The source was asked to cancel it. It may still complete; the next poll is shown below.'),
  } satisfies Record<ManualPollEnd, object>
  return words[end]
}
