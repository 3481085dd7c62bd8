import { causeWords } from '../../on-call/cause-words.ts'

/** The meaning of each code that has no entry among the causes. */
const meanings: Record<string, string> = {
  id_reused: 'an earlier webhook with the same id had another body',
  contradiction: 'it contradicts the stored result',
  foreign_host: 'its media are on a host that is not in MEDIA_HOSTS',
  landed: 'its result was written',
  no_effect: 'it changed nothing: its request had already ended in this state',
  retry: 'processing failed and is tried again',
  accepted: 'it is stored and not processed yet',
  duplicate: 'the same webhook was stored before',
  parked: 'it is authentic but not usable; fix the cause, then replay it',
  refused: 'it was not accepted; see the cause',
  unavailable: 'it could not be stored; the sender tries again',
  pending: 'it waits to be processed',
  processed: 'it was processed',
}

/** The meaning of an outcome, a state, a flag or a cause. */
export function meaningOf(code: string): string | undefined {
  return Object.hasOwn(meanings, code) ? meanings[code] : causeWords(code)?.means
}

/** The title of a cause; an unknown cause itself. */
export const titleOfCause = (reason: string) => causeWords(reason)?.title ?? reason
