import { causesOf, causeWords } from '../../on-call/cause-words.ts'

/** The meaning of each code that has no entry among the causes. */
const meanings: Record<string, string> = {
  payload_too_large: 'its body is larger than MAX_BODY_BYTES',
  unsupported_encoding: 'its body was compressed, which the signature does not cover',
  aborted: 'the sender disconnected before the end',
  too_many_chunks: 'its body came in more chunks than its length allows',
  too_slow: 'its body did not arrive in time',
  bad_request: 'its body was incomplete',
  too_much_waiting: 'too many arrivals waited for Postgres; the sender tries again',
  too_much_being_received: 'too many bodies were being received; the sender tries again',
  postgres_too_slow: 'Postgres did not answer in time; the sender tries again',
  postgres_failed: 'Postgres refused to store it; the sender tries again',
  internal_error: 'an internal error; see the log',
  id_reused: 'an earlier webhook with the same id had another body',
  contradiction: 'it contradicts the stored result',
  foreign_host: 'its media are on a host that is not in MEDIA_HOSTS',
  landed: 'its result was written',
  confirmed: "the provider's result agrees with the webhook",
  no_effect: 'it repeats a known result',
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

export const parkReasons = causesOf('parked')
export const refusalReasons = [
  ...causesOf('quarantine'),
  'payload_too_large',
  'unsupported_encoding',
  'aborted',
  'too_many_chunks',
  'too_slow',
  'too_much_waiting',
  'too_much_being_received',
  'postgres_too_slow',
  'postgres_failed',
  'internal_error',
]
