import { pollEndings, type ManualPollAnswer, type PollEnding } from '../../domain/poll-endings.ts'
import type { Request } from '../../queries/requests.ts'
import { pollSummaryOf } from './request-words.ts'

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
