/*
 * How a poll ends. A poll is for one request, and may make several calls. The words, from the call to the row:
 *
 *   outcome of a call   FetchOutcome. The log `polls` has a row for each call
 *   answer of a poll    ResultAnswer of fetching/fetcher.ts: the outcomes of its calls together, or why it made none
 *   ending of a poll    PollEnding, in this file: the answer, and what became of it here
 *   poll outcome        PollOutcome, in this file: the ending as `requests.poll_outcome` shows it
 *
 * An answer with a result ends as `landed`, `known` or `landing_failed`. Any other answer is the ending, but for the
 * cases of endingOf() in reconciling/polling.ts.
 *
 * The columns of `pollEndings`:
 *
 *   stored     the poll outcome. An extra poll that ends `in_place` leaves the earlier one
 *   counters   the counts of a run of the reconciler that the poll adds to
 *   manual     the answer to an operator who asked for the poll. `compared`: the request before and after decides
 *   next       the next poll:
 *                steady    soon, since the awaited answer will come
 *                slowing   later each time, since the answer rarely changes
 *                in_place  as before, since the poll showed nothing of the request. The poll is not counted
 *                never     none, since the source has lost the request. A late webhook still lands
 *                done      none, since the result is known
 */

/**
 * The values that readers of `requests.poll_outcome` are promised; `poll_detail` adds to them. `unauthorized` and
 * `rate_limited` concern only the key: polls now store them as `postponed`, with the ending in `poll_detail`.
 */
export const pollOutcomes = [
  'result',
  'running',
  'not_found',
  'not_found_yet',
  'lost',
  'unreachable',
  'invalid',
  'unauthorized',
  'rate_limited',
  'landing_failed',
  'postponed',
] as const
export type PollOutcome = (typeof pollOutcomes)[number]

type Row = {
  stored: PollOutcome
  counters: readonly ('landed' | 'running' | 'notFound' | 'failed' | 'postponed' | 'rateLimited')[]
  manual: string
  next: 'steady' | 'slowing' | 'in_place' | 'never' | 'done'
}

export const pollEndings = {
  // The source's result changed the request for readers.
  landed: { stored: 'result', counters: ['landed'], manual: 'compared', next: 'done' },
  // The result changed nothing for readers, also where it contradicts a confirmed end. If other landings changed the row
  // at each try, nothing is written, and the lease expires.
  known: { stored: 'result', counters: [], manual: 'compared', next: 'done' },
  // Postgres refused the result, or its row stayed locked.
  landing_failed: { stored: 'landing_failed', counters: ['failed'], manual: 'failed', next: 'slowing' },

  // The request has not finished.
  running: { stored: 'running', counters: ['running'], manual: 'running', next: 'steady' },
  // No key that was tried knows the request.
  not_found: { stored: 'not_found', counters: ['notFound'], manual: 'not_found', next: 'slowing' },
  // No key knows the request, a day after it was tracked or landed.
  lost: { stored: 'lost', counters: ['notFound'], manual: 'not_found', next: 'never' },
  // A key does not know it, and another that may know it has no call left.
  not_found_yet: { stored: 'not_found_yet', counters: ['postponed'], manual: 'postponed', next: 'slowing' },
  // A key does not know it, and another that may know it pauses for another reason.
  others_paused: { stored: 'postponed', counters: ['postponed'], manual: 'postponed', next: 'slowing' },
  // A key does not know it, and the source refuses another that may know it. That key may be accepted again at any
  // moment, and only a request of that key shows it.
  others_refused: { stored: 'postponed', counters: ['postponed'], manual: 'postponed', next: 'steady' },

  // The source gave no usable answer.
  unreachable: { stored: 'unreachable', counters: ['failed'], manual: 'failed', next: 'steady' },
  // The answer does not follow the documents of the API.
  invalid: { stored: 'invalid', counters: ['failed'], manual: 'failed', next: 'slowing' },

  // The source refused the key.
  unauthorized: { stored: 'postponed', counters: ['postponed'], manual: 'postponed', next: 'in_place' },
  // The source limits the calls of the key.
  rate_limited: { stored: 'postponed', counters: ['postponed', 'rateLimited'], manual: 'postponed', next: 'in_place' },
  // No call was made, since the source is down, or no key has one left or may make one. Or this process cut its call in
  // order to stop, and the source may have received it. `poll_detail` has the reason. That of a cut call is `stopping`.
  no_call: { stored: 'postponed', counters: ['postponed'], manual: 'postponed', next: 'in_place' },
  // No key of its source and environment may make calls. Not in place: such requests would keep others from their turns.
  // The key may be added at any moment.
  no_key: { stored: 'postponed', counters: ['postponed'], manual: 'postponed', next: 'steady' },
} as const satisfies Record<string, Row>

type Endings = typeof pollEndings

export type PollEnding = keyof Endings

export type RunCounter = Endings[PollEnding]['counters'][number]

export type ManualPollAnswer = Exclude<Endings[PollEnding]['manual'], 'compared'>

/** See `next` above. */
export type NextPoll = Row['next']
export type Rhythm = Extract<NextPoll, 'steady' | 'slowing'>
