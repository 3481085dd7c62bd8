/*
 * How a poll ends. A poll is for one request, and may make several calls. The words, from the call to the row:
 *
 *   outcome of a call   FetchOutcome. The log `polls` has a row for each call
 *   answer of a poll    ResultAnswer of fetching/fetcher.ts: the outcomes of its calls together, or why it made none
 *   ending of a poll    PollEnding, in this file: the answer, and what became of it here
 *   poll outcome        PollOutcome, in this file: the ending as `requests.poll_outcome` shows it
 *
 * An answer with a result ends as `landed`, `result` or `landing_failed`. Any other answer is the ending, but for the
 * cases of endingOf() in reconciling/polling.ts. Every ending:
 *
 *   landed            the source's result changed the request for readers
 *   result            the result was known, or other landings changed the row at each try to land it
 *   running           the request has not finished
 *   not_found         no key that was tried knows the request
 *   lost              the same, a day after the request was tracked or landed
 *   not_found_yet     a key does not know it, and another that may know it has no call left
 *   others_paused     a key does not know it, and another that may know it pauses for another reason
 *   others_refused    a key does not know it, and another that may know it is refused by the source
 *   unreachable       the source gave no usable answer
 *   invalid           the answer does not follow the documents of the API
 *   unauthorized      the source refused the key
 *   rate_limited      the source limits the calls of the key
 *   no_call           either no call was made, since the source is down, or no key has one left or may make one; or this
 *                     process cut its call in order to stop, and the source may have received it. `poll_detail` has the
 *                     reason; the second one is `stopping`
 *   no_key            no key of its source may make calls
 *   landing_failed    Postgres refused the result
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
  landed: { stored: 'result', counters: ['landed'], manual: 'compared', next: 'done' },
  result: { stored: 'result', counters: [], manual: 'compared', next: 'done' },
  running: { stored: 'running', counters: ['running'], manual: 'running', next: 'steady' },
  not_found: { stored: 'not_found', counters: ['notFound'], manual: 'not_found', next: 'slowing' },
  lost: { stored: 'lost', counters: ['notFound'], manual: 'not_found', next: 'never' },
  not_found_yet: { stored: 'not_found_yet', counters: ['postponed'], manual: 'postponed', next: 'slowing' },
  others_paused: { stored: 'postponed', counters: ['postponed'], manual: 'postponed', next: 'slowing' },
  // A refused key may be accepted again at any moment, and only a request of that key shows it.
  others_refused: { stored: 'postponed', counters: ['postponed'], manual: 'postponed', next: 'steady' },
  unreachable: { stored: 'unreachable', counters: ['failed'], manual: 'failed', next: 'steady' },
  invalid: { stored: 'invalid', counters: ['failed'], manual: 'failed', next: 'slowing' },
  unauthorized: { stored: 'postponed', counters: ['postponed'], manual: 'postponed', next: 'in_place' },
  rate_limited: { stored: 'postponed', counters: ['postponed', 'rateLimited'], manual: 'postponed', next: 'in_place' },
  no_call: { stored: 'postponed', counters: ['postponed'], manual: 'postponed', next: 'in_place' },
  // Not in place: requests without a key would keep others from their turns. The key may be added at any moment.
  no_key: { stored: 'postponed', counters: ['postponed'], manual: 'postponed', next: 'steady' },
  landing_failed: { stored: 'landing_failed', counters: ['failed'], manual: 'failed', next: 'slowing' },
} as const satisfies Record<string, Row>

type Endings = typeof pollEndings

export type PollEnding = keyof Endings

export type RunCounter = Endings[PollEnding]['counters'][number]

export type ManualPollAnswer = Exclude<Endings[PollEnding]['manual'], 'compared'>

/** See `next` above. */
export type NextPoll = Row['next']
export type Rhythm = Extract<NextPoll, 'steady' | 'slowing'>
