import { causesOf, causeWords } from '../../on-call/cause-words.ts'

/** What our other codes mean, for someone who does not know them by heart. */
const meanings: Record<string, string> = {
  payload_too_large: 'its body is larger than MAX_BODY_BYTES',
  unsupported_encoding: 'its body was compressed, which the signature does not cover',
  aborted: 'the sender hung up before the end',
  bad_request: 'its body did not arrive whole',
  too_much_waiting: 'too many were waiting for Postgres already; the sender tries again',
  postgres_too_slow: 'Postgres did not answer in time; the sender tries again',
  postgres_failed: 'Postgres refused to store it; the sender tries again',
  internal_error: 'something failed on our side; the log has the details',
  id_reused: 'another body came under the same webhook id before',
  contradiction: 'it contradicts the stored result',
  foreign_host: 'its media lie on a host that is not in MEDIA_HOSTS',
  landed: 'its result was written',
  confirmed: "the provider's result was taken over; it is what the webhook carried",
  no_effect: 'it says what was known already',
  retry: 'processing failed and is tried again',
  accepted: 'it is stored, and not yet processed',
  duplicate: 'the same had come before',
  parked: 'it is authentic but cannot be used, and waits for you',
  refused: 'it was not authentic, and nothing of it is trusted',
  unavailable: 'it could not be stored and was not acknowledged; the sender tries again',
  pending: 'it waits to be processed',
  processed: 'it was processed',
}

/** What a code of ours means: an outcome, a state, a flag, a cause. */
export function meaningOf(code: string): string | undefined {
  return Object.hasOwn(meanings, code) ? meanings[code] : causeWords(code)?.means
}

export const parkReasons = causesOf('parked')
export const refusalReasons = [
  ...causesOf('quarantine'),
  'payload_too_large',
  'unsupported_encoding',
  'aborted',
  'too_much_waiting',
  'postgres_too_slow',
  'postgres_failed',
  'internal_error',
]
