import { keyNamesOf } from '../domain/keys.ts'
import { sourceLabel, storedName, type FetchOutcome } from '../domain/source.ts'
import { noteFailing } from './key-health.ts'
import { createStandIns, keysToTry, type KeyFacts, type KeyToTry, type Step } from './keys-to-try.ts'
import type { PollRecord } from './poll-log.ts'
import { createSourceBreakers, type SourceBreaker } from './source-breaker.ts'
import { callSource, healthNotUpdated, type CallingDeps } from './source-call.ts'

type FetcherDeps = CallingDeps & {
  clock: () => Date
  /** Receives every answered call, with its outcome. */
  onPolled?: (poll: PollRecord) => void
}

/**
 * The answer of a poll: the outcome of a call, or of several together, or why there was none. See poll-endings.ts. A
 * `reason` is that of a refused call (call-budget.ts), `provider_down` also if the breaker is open, or `stopping`.
 */
export type ResultAnswer =
  | FetchOutcome
  | { kind: 'no_key' }
  | { kind: 'no_call' | 'not_found_yet' | 'others_paused' | 'others_refused'; reason: string }

type Fetched = { answer: ResultAnswer; keyName: string | undefined }

/** A request, with the facts that decide which keys are tried. */
type ResultLookup = KeyFacts & {
  requestId: string
  /** The source's own id of the job. */
  jobId: string
  model: string | undefined
  /** The environment is known only from a webhook that a sandbox key signed. */
  onlySandboxSigned?: boolean
  signal: AbortSignal
  /** Called once a call is granted, before it is made. The next poll begins then, so calls are granted in order. */
  onGranted?: () => void
}

export type Fetcher = (lookup: ResultLookup) => Promise<Fetched>

/**
 * Fetches the result of a request from its source, within the budgets of the keys: tries the keys of keysToTry() until
 * one gives an answer other than a 404 or a refusal of the key. The answer is a 404 if every key that this poll tried
 * gives one; the next poll tries others. Each source counts as down by its own calls alone.
 */
export function createFetcher(deps: FetcherDeps): Fetcher {
  const breakerOf = createSourceBreakers(deps.keys)
  const standIns = createStandIns()
  return async (lookup) => {
    const { sourceName, keyName } = lookup
    const breaker = breakerOf(sourceName)
    const tried: Fetched[] = []
    for (const { key, step, purpose } of keysToTry(deps.keys(), lookup, standIns.of(keyName))) {
      if (!mayTry(step, tried, lookup)) break
      const answer = await callForResult(deps, lookup, { key, purpose, breaker })
      standIns.note(keyName, { key, step }, answer.kind)
      if (isFinal(answer)) return { answer, keyName: key.name }
      tried.push({ answer, keyName: key.name })
    }
    return combine(tried) ?? { answer: { kind: 'no_key' }, keyName }
  }
}

/** Returns true if keys of this step are tried after these answers. The first step that is not tried ends the poll. */
function mayTry(step: Step, tried: readonly Fetched[], { keyName, onlySandboxSigned }: ResultLookup): boolean {
  const ofNamed = tried.find((one) => one.keyName === keyName)?.answer
  // The named key will have a call again, and other keys probably do not know its request. A refused key may stay
  // refused.
  if (ofNamed?.kind === 'no_call' && ofNamed.reason !== 'unauthorized') return step === 'stand_in'
  if (step !== 'other_environment' || onlySandboxSigned === true) return true
  // No key knows the request, so its environment is in doubt.
  return tried.length > 0 && tried.every(({ answer }) => answer.kind === 'not_found')
}

/** Returns true if no other key needs to be tried. */
function isFinal(answer: ResultAnswer): boolean {
  if (answer.kind === 'no_call') return answer.reason === 'provider_down' || answer.reason === 'stopping'
  return answer.kind !== 'not_found' && answer.kind !== 'unauthorized'
}

/** Combines the answers of the keys, of which none was final, into the one of the poll. */
function combine(tried: readonly Fetched[]): Fetched | undefined {
  const other = tried.find(({ answer }) => answer.kind !== 'not_found')
  const notFound = tried.find(({ answer }) => answer.kind === 'not_found')
  if (!other || !notFound) return notFound ?? other
  const reason = other.answer.kind === 'no_call' ? other.answer.reason : other.answer.kind
  const kind = reason === 'quota' ? 'not_found_yet' : reason === 'unauthorized' ? 'others_refused' : 'others_paused'
  return { answer: { kind, reason }, keyName: notFound.keyName }
}

/**
 * After this many failures in a row the keys of the source are recorded as failing, since one request alone may have
 * caused fewer. They are recorded again after as many more, since another process may have recorded their end.
 */
const failuresToNote = 3

/** Makes one call for the result of a request, if the source and the key may be called now. */
async function callForResult(
  deps: FetcherDeps,
  { requestId, jobId, model, signal, onGranted }: ResultLookup,
  { key, purpose, breaker }: Pick<KeyToTry, 'key' | 'purpose'> & { breaker: SourceBreaker },
): Promise<ResultAnswer> {
  const noCall = (reason: string) => {
    const outcome = `not_asked_${reason}`
    deps.calls.inc({ operation: 'result', outcome, ...sourceLabel(storedName(key.source)) })
    return { kind: 'no_call', reason } as const
  }
  const pass = breaker.enter(deps.clock())
  if (!pass) return noCall('provider_down')
  try {
    // The receiver cuts calls itself in order to stop, which says nothing about the source or the key.
    const isCut = ({ kind }: FetchOutcome) => kind === 'unreachable' && signal.aborted
    const outcome = await callSource(deps, {
      operation: 'result',
      key,
      purpose,
      call: (api) => key.source.kind.fetchResult({ jobId, model }, api),
      signal,
      factsOf: (of) => ({ request_id: requestId, ...(isCut(of) ? { outcome: 'cut' } : { detail: detailOf(of) }) }),
      onGranted,
    })
    if (outcome.kind === 'no_call') return noCall(outcome.reason)
    if (isCut(outcome)) return { kind: 'no_call', reason: 'stopping' }
    const polledAt = deps.clock()
    pass.note(outcome.kind !== 'unreachable', polledAt)
    deps.onPolled?.({ requestId, keyName: key.name, polledAt, outcome: outcome.kind, detail: detailOf(outcome) })
    if (outcome.kind === 'unreachable' && breaker.failures() % failuresToNote === 0) {
      const keyNames = keyNamesOf(deps.keys(), key.source)
      await noteFailing(deps.db, { keyNames, now: deps.time() }).catch(healthNotUpdated(deps, key))
    }
    return outcome
  } finally {
    pass.drop()
  }
}

function detailOf(outcome: FetchOutcome): string | undefined {
  switch (outcome.kind) {
    case 'result':
      return outcome.report.status
    case 'running':
      return outcome.status.status
    case 'rate_limited':
      return outcome.retryAfterSeconds === undefined ? undefined : `Retry-After: ${outcome.retryAfterSeconds} s`
    case 'unreachable':
    case 'invalid':
      return outcome.detail
    case 'not_found':
    case 'unauthorized':
      return undefined
    default:
      return outcome satisfies never
  }
}
