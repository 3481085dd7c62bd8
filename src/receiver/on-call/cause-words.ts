import type { RefusalCause } from '../../wire/signature.ts'
import type { ParkReason } from '../domain/report.ts'

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
      'The signature is well formed, but none of our secrets made it. A key was created or rotated at the provider and its secret is missing here, or the webhook is forged.',
    todo: 'Add the secret of the key to the configured keys. Keep the old one, as retired. Then verify these again.',
  },
  timestamp_too_old: {
    clause: 'the signed time is too old',
    title: 'Signed too long ago',
    means:
      'A secret of ours matches, but it was signed more than 5 minutes before it arrived. Our clock is ahead, theirs is behind, or an old webhook was sent again.',
    todo: 'Compare our clock with a time server. Re-verifying will not help: they were already outside the window on arrival. The reconciler fetches the results of requests that mediadock submitted or tracks.',
  },
  timestamp_in_future: {
    clause: 'the signed time is in the future',
    title: 'Signed in the future',
    means:
      'A secret of ours matches, but the signed time is more than 5 minutes after the arrival. Our clock is behind, or theirs is ahead.',
    todo: 'Compare our clock with a time server. Re-verifying will not help: they were already outside the window on arrival. The reconciler fetches the results of requests that mediadock submitted or tracks.',
  },
  malformed_header: {
    clause: 'the signature header is malformed',
    title: 'Signature header cannot be read',
    means:
      'X-Service-Signature does not have the form t=…,v1=…, or was sent more than once. The provider never sends it like this.',
    todo: 'From an unknown sender: nothing to do. From the provider: a proxy in between changes headers.',
  },
  missing_header: {
    clause: 'there is no signature header',
    title: 'No signature at all',
    means: 'X-Service-Signature is missing. The sender is a scanner or an attacker, or a proxy drops headers.',
    todo: 'From an unknown sender: nothing to do. From the provider: let the proxy pass the X-Service-… headers.',
  },
  invalid_webhook_id: {
    clause: 'the webhook id is not usable',
    title: 'No usable webhook id',
    means:
      'X-Service-Webhook-Id is absent, repeated, too long or not visible ASCII. Without an id there is no delivery, even if it is authentic.',
    todo: 'Verifying again cannot accept it. If the provider sent it, report it to the provider. The reconciler fetches the result if mediadock submitted or tracks the request.',
  },
}

/** Why nothing of an arrival was kept. The sender tries again. */
const notKept: Readonly<Record<string, CauseWords & { clause: string }>> = {
  payload_too_large: notKeptFor('the body is too large', 'Body too large', 'The body is larger than MAX_BODY_BYTES.'),
  unsupported_encoding: notKeptFor(
    'the body is compressed',
    'Compressed body',
    'The body was compressed, and the signature covers only the plain bytes.',
  ),
  aborted: notKeptFor('the sender disconnected', 'Sender disconnected', 'The sender disconnected before the end.'),
  too_many_chunks: notKeptFor(
    'the body came in too many chunks',
    'Too many chunks',
    'The body came in more chunks than its length allows.',
  ),
  too_slow: notKeptFor('the body came too slowly', 'Body too slow', 'The body did not arrive in time.'),
  bad_request: notKeptFor('the body was incomplete', 'Incomplete body', 'The body ended before its declared length.'),
  too_much_waiting: notKeptFor(
    'too much is waiting for Postgres',
    'Too much waiting',
    'More arrived than Postgres commits.',
  ),
  too_much_being_received: notKeptFor(
    'too much is being received',
    'Too much being received',
    'Too many large bodies were being received at once.',
  ),
  postgres_too_slow: notKeptFor('Postgres is too slow', 'Postgres too slow', 'Postgres did not commit in time.'),
  postgres_failed: notKeptFor('Postgres fails', 'Postgres failed', 'Postgres refused to store it.'),
  internal_error: notKeptFor('an internal error; see the log', 'Internal error', 'A bug in mediadock; see the log.'),
}

function notKeptFor(clause: string, title: string, means: string): CauseWords & { clause: string } {
  const todo = 'Such arrivals are not kept, so none can be verified again. The log of arrivals lists them.'
  return { clause, title, means, todo }
}

const parked: Record<ParkReason | 'key_mismatch' | 'source_mismatch' | 'landing_failed', CauseWords> = {
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
  inline_media: {
    title: 'Media as base64',
    means: 'Authentic, but its output has data: URIs instead of links. mediadock stores links only.',
    todo: 'Ask the API for links. Until RETENTION_DAYS, the bytes are in the body of the delivery.',
  },
  no_request_id: {
    title: 'No request id',
    means: 'Authentic, but it names no request by a uuid.',
    todo: notDescribed(),
  },
  unknown_status: {
    title: 'Unknown status',
    means: 'Authentic, but its status is neither OK nor ERROR. The provider may have a newer API.',
    todo: notDescribed(),
  },
  unknown_source: {
    title: 'Unknown source',
    means: 'Authentic when it arrived, but its source is no longer in SOURCES_FILE, so it cannot be read.',
    todo: 'Add the source again and reload the keys, then replay.',
  },
  source_mismatch: {
    title: 'Request of another source',
    means: 'Signed by one source for a request that belongs to another. Its result is not applied.',
    todo: 'A request never changes its source. If a service tracked it with the wrong key, correct the key there and submit again. Otherwise find out who holds the secret of the key that signed.',
  },
  key_mismatch: {
    title: 'Key of the other environment',
    means:
      'Signed with a live key for a request that is tracked as sandbox, or the reverse, or with a key of unknown environment. Its result is not applied.',
    todo: 'Correct the key name of the tracked request if it is wrong, then replay.',
  },
  landing_failed: {
    title: 'Landing failed five times',
    means:
      'Postgres refused to store the result five times. The cause is often a trigger or a constraint that was added to these tables.',
    todo: 'Fix the cause that Postgres names, then replay.',
  },
}

function notDescribed(): string {
  return 'Not urgent: the reconciler fetches the result if mediadock submitted or tracks the request. Replay after an upgrade that reads such bodies.'
}

const words: Record<CausePlace, Readonly<Record<string, CauseWords>>> = { quarantine: refused, parked }

export function wordsOf(place: CausePlace, reason: string): CauseWords {
  if (Object.hasOwn(words[place], reason) && words[place][reason]) return words[place][reason]
  if (Object.hasOwn(notKept, reason) && notKept[reason]) return notKept[reason]
  return {
    title: reason,
    means: 'This version does not describe this cause.',
    todo: 'Open one of them: its attempts have the details.',
  }
}

export type KeysPlace = { keysFile: string | undefined; sourcesFile?: string | undefined }

/** How to change the keys of this process. */
export function reloadKeys({ keysFile, sourcesFile }: KeysPlace): string {
  const own =
    keysFile === undefined
      ? 'Keys come from GENERATION_KEYS: change it and restart the receiver.'
      : `Keys come from the file ${keysFile}: change it and send the receiver SIGHUP. No restart is needed.`
  return sourcesFile === undefined
    ? own
    : `${own} Keys of further sources come from the file ${sourcesFile}, which SIGHUP reads again too.`
}

/** The next step for a cause, with the place of the keys of this process. */
export function todoOf(place: CausePlace, reason: string, keys: KeysPlace): string {
  const { todo } = wordsOf(place, reason)
  return place === 'quarantine' && reason === 'no_matching_secret' ? `${todo} ${reloadKeys(keys)}` : todo
}

/** A cause as a part of a sentence: `no secret matches`. */
export function causeClause(reason: string): string {
  if (Object.hasOwn(parked, reason)) return parkedClause(reason)
  const clauses: Readonly<Record<string, { clause: string }>> = { ...refused, ...notKept }
  return Object.hasOwn(clauses, reason) ? (clauses[reason]?.clause ?? reason) : reason
}

/** The title within a sentence. Abbreviations keep their capitals. */
function parkedClause(reason: string): string {
  const { title } = wordsOf('parked', reason)
  return title.slice(0, 1).toLowerCase() + title.slice(1)
}

/** The words of any cause; undefined for an unknown one. */
export function causeWords(reason: string): CauseWords | undefined {
  const all: Readonly<Record<string, CauseWords>> = { ...refused, ...parked, ...notKept }
  return Object.hasOwn(all, reason) ? all[reason] : undefined
}

/** The causes of arrivals of which nothing was kept. */
export function causesNotKept(): string[] {
  return Object.keys(notKept)
}

export function causesOf(place: CausePlace): string[] {
  return Object.keys(words[place])
}

/** The place of a cause, for links that name only the cause. */
export function placeOf(reason: string): CausePlace {
  return Object.hasOwn(parked, reason) ? 'parked' : 'quarantine'
}
