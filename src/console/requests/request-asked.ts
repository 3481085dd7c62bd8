import type { ReconcileRun } from '../../receiver/reconciling/reconciler.ts'
import type { Request } from '../../receiver/queries/requests.ts'
import { heardOf, wholeMedia } from './request-words.ts'

// What came of asking the provider by hand: it stands in the address, so that it can be shown and sent on.

const ends = ['landed', 'completed', 'confirmed', 'unchanged', 'running', 'not_found', 'failed', 'postponed', 'busy'] as const
export type AskedEnd = (typeof ends)[number]

/** What changed; `run` is undefined where another was asking at the same moment. */
export function endOf(run: ReconcileRun | undefined, before: Request, after: Request): AskedEnd {
  if (!run) return 'busy'
  if (run.postponed > 0) return 'postponed'
  if (run.running > 0) return 'running'
  if (run.notFound > 0) return 'not_found'
  if (run.failed > 0) return 'failed'
  if (after.status !== before.status || before.landed_at === null) return 'landed'
  if (after.confirmed_at === before.confirmed_at) return 'unchanged'
  return before.media_complete && after.media_items === before.media_items ? 'confirmed' : 'completed'
}

export function parseEnd(text: string | undefined): AskedEnd | undefined {
  return ends.find((end) => end === text)
}

export type AskedWords = { good: boolean; text: string }

export function askedWords(end: AskedEnd, request: Request): AskedWords {
  const heard = heardOf(request).text
  switch (end) {
    case 'landed':
      return { good: true, text: `The provider gave its result, and it landed: the request is now ${request.status}.` }
    case 'completed':
      return { good: true, text: `The provider gave its result. The state stayed ${request.status}; ${wholeMedia(request.media_items)} now.` }
    case 'confirmed':
      return { good: true, text: `The provider's own result says what the webhook had said, ${request.status}. It was taken over with the provider's times.` }
    case 'unchanged':
      return { good: true, text: `The provider gave its result, and nothing changed: its own result stands here already, as ${request.status}.` }
    case 'running':
      return { good: true, text: 'Nothing changed: the provider says that it has not ended. It is asked again by itself; see the next question below.' }
    case 'not_found':
      return { good: false, text: `Nothing changed: ${heard}. Look whether the key of its account is configured, and whether the id is right.` }
    case 'failed':
      return { good: false, text: `Nothing changed: ${heard}. Look at the provider's status; it is asked again by itself.` }
    case 'postponed':
      return { good: false, text: `Nothing changed, and the provider gave no answer: ${heard}. The page of keys shows until when; then ask again.` }
    case 'busy':
      return { good: false, text: 'Nothing was asked: another process is asking for it at this moment. Reload this page in a few seconds.' }
    default:
      return end satisfies never
  }
}
