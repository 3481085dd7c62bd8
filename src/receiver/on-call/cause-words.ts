import type { RefusalCause } from '../../wire/signature.ts'
import type { ParkReason } from '../domain/delivery.ts'

export type CauseWords = {
  title: string
  means: string
  todo: string
}

export type CausePlace = 'quarantine' | 'parked'

const refused: Record<RefusalCause | 'missing_header' | 'invalid_webhook_id', CauseWords & { clause: string }> = {
  no_matching_secret: {
    clause: 'no secret matches',
    title: 'No secret matches',
    means:
      'The signature is well formed, but none of our secrets produced it: a key was created or changed at the provider and its secret is missing here, or the webhook is forged.',
    todo: 'Add the secret of the key to the keys (the old one may stay, retired), then verify these again.',
  },
  timestamp_too_old: {
    clause: 'the signed time is too old',
    title: 'Signed too long ago',
    means:
      'A secret of ours matches, but the signed time lay more than 5 minutes before the arrival: our clock is ahead, theirs is behind, or an old webhook was sent again.',
    todo: 'Compare our clock with a time server. The window is judged against the arrival, so verifying again accepts none of them; the reconciler fetches their results.',
  },
  timestamp_in_future: {
    clause: 'the signed time is in the future',
    title: 'Signed in the future',
    means:
      'A secret of ours matches, but the signed time lay more than 5 minutes after the arrival: our clock is behind, or theirs is ahead.',
    todo: 'Compare our clock with a time server. The window is judged against the arrival, so verifying again accepts none of them; the reconciler fetches their results.',
  },
  malformed_header: {
    clause: 'the signature header is malformed',
    title: 'Signature header cannot be read',
    means:
      'X-Service-Signature is not of the form t=…,v1=…, or it was sent more than once. The provider does not write it so.',
    todo: 'From unknown senders: nothing to do, nothing of it is trusted. From the provider: a proxy between us changes headers.',
  },
  missing_header: {
    clause: 'there is no signature header',
    title: 'No signature at all',
    means: 'X-Service-Signature was not sent: a scanner or an attacker, or a proxy in between that drops headers.',
    todo: 'From unknown senders: nothing to do, nothing of it is trusted. From the provider: let the proxy pass the X-Service-… headers.',
  },
  invalid_webhook_id: {
    clause: 'the webhook id is not usable',
    title: 'No usable webhook id',
    means:
      'X-Service-Webhook-Id is absent, repeated, too long or not visible ASCII. Without an id there is no delivery, even if it is authentic.',
    todo: 'Verifying again cannot accept it. If it came from the provider, its result is fetched by the reconciler; tell the provider.',
  },
}

/** Why an arrival could not be acknowledged; the sender tries again. */
const unavailable: Readonly<Record<string, string>> = {
  postgres_failed: 'Postgres fails',
  postgres_too_slow: 'Postgres is too slow',
  too_much_waiting: 'too much is waiting for Postgres',
  internal_error: 'an error of our own, see the log',
}

const parked: Record<ParkReason | 'key_mismatch' | 'landing_failed', CauseWords> = {
  not_utf8: {
    title: 'Not UTF-8',
    means: 'Authentic, but its bytes are not UTF-8 text without a byte-order mark.',
    todo: notDescribed(),
  },
  not_json: { title: 'Not JSON', means: 'Authentic, but its bytes are not JSON.', todo: notDescribed() },
  not_storable: {
    title: 'Cannot be stored',
    means: 'Authentic, but it holds NUL or lone surrogates, which Postgres does not store.',
    todo: notDescribed(),
  },
  unknown_shape: {
    title: 'Unknown shape',
    means: 'Authentic JSON, but not a notification as the API describes it.',
    todo: notDescribed(),
  },
  no_request_id: {
    title: 'No request id',
    means: 'Authentic, but it does not say by a uuid which request it is about.',
    todo: notDescribed(),
  },
  unknown_status: {
    title: 'Unknown status',
    means: 'Authentic, but its status is neither OK nor ERROR: the provider may have a newer API.',
    todo: notDescribed(),
  },
  key_mismatch: {
    title: 'Key of the other environment',
    means:
      'Signed with a live key for a request that is tracked as sandbox, or the other way round, or with a key of unknown environment. Its result is not applied.',
    todo: 'Correct the key name of the tracked request if it is wrong, then replay.',
  },
  landing_failed: {
    title: 'Landing failed five times',
    means:
      'Postgres refused what it would write, five times over. The attempts of each delivery say why; it is often a trigger or constraint of your own.',
    todo: 'Mend the cause first, then replay.',
  },
}

function notDescribed(): string {
  return 'Nothing is urgent: if its request is tracked, the result is still fetched from the provider. After an upgrade that understands such bodies, replay. They are pruned after RETENTION_DAYS.'
}

const words: Record<CausePlace, Readonly<Record<string, CauseWords>>> = { quarantine: refused, parked }

export function wordsOf(place: CausePlace, reason: string): CauseWords {
  if (Object.hasOwn(words[place], reason) && words[place][reason]) return words[place][reason]
  // Too large, compressed or cut off: refused before there was anything to keep.
  const todo =
    place === 'parked'
      ? 'Look at one of them: its attempts tell more.'
      : 'Such arrivals are not kept, so none can be verified again; the log of arrivals has each of them.'
  return { title: reason, means: 'A cause that this version has no words for.', todo }
}

export type KeysPlace = { keysFile: string | undefined }

/** How other keys come into force in this process, by where it has them from. */
export function reloadKeys({ keysFile }: KeysPlace): string {
  return keysFile === undefined
    ? 'The keys of this process are in GENERATION_KEYS: change them there and restart it; SIGHUP does not reload them.'
    : `The keys of this process are in the file ${keysFile} (GENERATION_KEYS_FILE): change them there and send it SIGHUP. No restart is needed.`
}

/** What to do about a cause, as it is done with this process. */
export function todoOf(place: CausePlace, reason: string, keys: KeysPlace): string {
  const { todo } = wordsOf(place, reason)
  return place === 'quarantine' && reason === 'no_matching_secret' ? `${todo} ${reloadKeys(keys)}` : todo
}

/** A cause as a part of a sentence: `no secret matches`. */
export function causeClause(reason: string): string {
  const clauses: Readonly<Record<string, { clause: string }>> = refused
  if (Object.hasOwn(clauses, reason)) return clauses[reason]?.clause ?? reason
  return Object.hasOwn(unavailable, reason) ? (unavailable[reason] ?? reason) : reason
}

/** The same wherever it lies; undefined for what is no cause that we know. */
export function causeWords(reason: string): CauseWords | undefined {
  return words.quarantine[reason] ?? words.parked[reason]
}

export function causesOf(place: CausePlace): string[] {
  return Object.keys(words[place])
}

/** Where things of this cause lie, when a link names the cause alone. */
export function placeOf(reason: string): CausePlace {
  return Object.hasOwn(parked, reason) ? 'parked' : 'quarantine'
}
