import { isUsable, keyNamesOf, sourceOf, type Environment, type GenerationKey, type Keys } from '../domain/keys.ts'
import { sourceLabel, storedName, type FetchOutcome } from '../domain/source.ts'
import type { Purpose } from './call-budget.ts'
import { noteFailing } from './key-health.ts'
import type { PollRecord } from './poll-log.ts'
import { createSourceBreaker, type SourceBreaker } from './source-breaker.ts'
import { callSource, healthNotUpdated, type CallingDeps } from './source-call.ts'

export type FetcherDeps = CallingDeps & {
  clock: () => Date
  /** Receives every answered call, with its outcome. */
  onPolled?: (poll: PollRecord) => void
}

/**
 * The provider's answer, or why there is none. `no_call`: no call was made, or this process cut it in order to stop.
 * `not_found_yet`: a key does not know the request, and another one that may know it had no call or was refused.
 */
export type ResultAnswer =
  | FetchOutcome
  | { kind: 'no_call'; reason: string }
  | { kind: 'not_found_yet'; reason: string }

/** The answer, and the key that received it. */
export type Fetched = { answer: ResultAnswer; keyName: string | undefined }

/** A request, with the facts that decide which keys are tried. */
export type ResultLookup = {
  requestId: string
  /** The source's own id of the job. */
  jobId: string
  /** The source of the request: see storedName(). Only its keys are tried. */
  sourceName: string | null
  model: string | undefined
  /** The key with which the request was tracked, or its webhook signed. */
  keyName: string | undefined
  /** The environment of the request, if it is known although the key is not. */
  environment?: Environment | undefined
  /** The environment is known only from a webhook that a sandbox key signed. */
  onlySandboxSigned?: boolean
  purpose: Exclude<Purpose, 'submitting'>
  /** The number of the poll. It selects which of the other keys are tried. */
  turn?: number
  signal: AbortSignal
  /** Called once a call is granted, before it is made. The next poll begins then, so calls are granted in order. */
  onGranted?: () => void
}

export type Fetcher = (lookup: ResultLookup) => Promise<Fetched>

/** Each try is a call of up to 10 s, one after the other. */
const maxOthers = 3

/**
 * Fetches the result of a request from its source, within the budgets of the keys. Keys of other sources are never
 * tried, and each source counts as down by its own calls alone. The keys are tried in this order, until one gives an
 * answer other than a 404 or a refusal of the key:
 *
 * 1. the named key
 * 2. its stand-in, which is the key that last read a request of the named key
 * 3. of three other keys, which take their turn from poll to poll, those of the environment of the request. If a key is
 *    named, the three take trial calls.
 * 4. those of the three that are of the other environment, since the named key may be wrong or forged: if all keys
 *    before answered 404, or if only a sandbox key signed
 *
 * Without a call for the named key, only its stand-in follows, unless the key was refused. The answer is a 404 if every
 * key that this poll tried gives one; the next poll tries others.
 */
export function createFetcher(deps: FetcherDeps): Fetcher {
  const breakers = new Map<string | null, SourceBreaker>()
  // By named key, the key that last read one of its requests.
  const standIns = new Map<string, string>()
  return async (lookup) => {
    const { sourceName, keyName } = lookup
    const breaker = breakers.get(sourceName) ?? createSourceBreaker()
    // Only names of the settings are added, so the map stays small.
    if (sourceOf(deps.keys(), sourceName)) breakers.set(sourceName, breaker)
    const tried: Fetched[] = []
    let onlyStandIn = false
    for (const { key, purpose, inEnvironment, isStandIn } of candidates(deps.keys(), lookup, standIns)) {
      if (onlyStandIn && !isStandIn) break
      const isUnknownSoFar = tried.length > 0 && tried.every(({ answer }) => answer.kind === 'not_found')
      if (!inEnvironment && !lookup.onlySandboxSigned && !isUnknownSoFar) break
      const answer = await callForResult(deps, lookup, { key, purpose, breaker })
      const isNamed = key.name === keyName
      if (keyName !== undefined && !isNamed && inEnvironment) noteStandIn(standIns, { keyName, key, answer })
      if (isFinal(answer)) return { answer, keyName: key.name }
      tried.push({ answer, keyName: key.name })
      // The named key has no call, so only its stand-in may be used.
      onlyStandIn ||= isNamed && answer.kind === 'no_call' && answer.reason !== 'unauthorized'
    }
    return combine(tried) ?? { answer: { kind: 'no_call', reason: 'no_key' }, keyName }
  }
}

/** Returns true if no other key needs to be tried. */
function isFinal(answer: ResultAnswer): boolean {
  if (answer.kind === 'no_call') return answer.reason === 'provider_down' || answer.reason === 'stopping'
  return answer.kind !== 'not_found' && answer.kind !== 'unauthorized'
}

/** Combines answers of which none was final. */
function combine(tried: readonly Fetched[]): Fetched | undefined {
  const other = tried.find(({ answer }) => answer.kind !== 'not_found')
  const notFound = tried.find(({ answer }) => answer.kind === 'not_found')
  if (!other || !notFound) return notFound ?? other
  const reason = other.answer.kind === 'no_call' ? other.answer.reason : other.answer.kind
  return { answer: { kind: 'not_found_yet', reason }, keyName: notFound.keyName }
}

/** Records that a key reads requests of the named key, so both are of one account. A 404 removes the record. */
function noteStandIn(
  standIns: Map<string, string>,
  { keyName, key, answer }: { keyName: string; key: GenerationKey; answer: ResultAnswer },
): void {
  if (answer.kind === 'result' || answer.kind === 'running') {
    // Services may track under any name, so the map is bounded. Later polls record them again.
    if (standIns.size >= 1000) standIns.clear()
    standIns.set(keyName, key.name)
  }
  if (answer.kind === 'not_found' && standIns.get(keyName) === key.name) standIns.delete(keyName)
}

/** A key to try. `inEnvironment`: it is of the request's environment, or that is unknown. */
type Candidate = { key: GenerationKey; purpose: Purpose; inEnvironment: boolean; isStandIn: boolean }

function candidates(
  keys: Keys,
  { sourceName, keyName, environment, purpose, turn = 0 }: ResultLookup,
  standIns: ReadonlyMap<string, string>,
): Candidate[] {
  const usable = keys.all.filter((key) => isUsable(key) && storedName(key.source) === sourceName)
  const named = keyName === undefined ? undefined : keys.byName.get(keyName)
  const own = named?.environment ?? environment
  const inEnvironment = (key: GenerationKey) => own === undefined || key.environment === own
  const first = usable.find((key) => key.name === keyName)
  // Only of the same environment: a sandbox key can sign any id, and must not use up a live key's calls.
  const standIn = usable.find((key) => inEnvironment(key) && key.name === standIns.get(keyName ?? ''))
  // A key of unknown environment may have leaked its secret, so it gets only a tenth of another key's calls.
  const ofStandIn: Purpose = own === undefined ? 'trial' : purpose
  const known: Candidate[] = [first, standIn].flatMap((key) =>
    key ? [{ key, purpose: key === first ? purpose : ofStandIn, inEnvironment: true, isStandIn: key !== first }] : [],
  )
  const others = usable.filter((key) => key !== first && key !== standIn)
  const start = (turn * maxOthers) % Math.max(1, others.length)
  const inTurn =
    others.length <= maxOthers ? others : [...others.slice(start), ...others.slice(0, start)].slice(0, maxOthers)
  // Without a named key, the request is attributed to no key, so any key may complete it.
  const ofOthers: Purpose = keyName === undefined ? purpose : 'trial'
  const unknown: Candidate[] = inTurn.map((key) => {
    return { key, purpose: ofOthers, inEnvironment: inEnvironment(key), isStandIn: false }
  })
  return [...known, ...unknown.toSorted((a, b) => Number(b.inEnvironment) - Number(a.inEnvironment))]
}

/**
 * After this many failures in a row the keys of the source are recorded as failing, since one request alone may have
 * caused fewer. They are recorded again after as many more, since another process may have recorded their end.
 */
const failuresToNote = 3

/** Makes one call for the result of a request, if the provider and the key may be called now. */
async function callForResult(
  deps: FetcherDeps,
  { requestId, jobId, model, signal, onGranted }: ResultLookup,
  { key, purpose, breaker }: Pick<Candidate, 'key' | 'purpose'> & { breaker: SourceBreaker },
): Promise<ResultAnswer> {
  const noCall = (reason: string) => {
    const outcome = `not_asked_${reason}`
    deps.calls.inc({ operation: 'result', outcome, ...sourceLabel(storedName(key.source)) })
    return { kind: 'no_call', reason } as const
  }
  const pass = breaker.enter(deps.clock())
  if (!pass) return noCall('provider_down')
  try {
    // The receiver cuts calls itself in order to stop, which says nothing about the provider or the key.
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

/** Returns the detail of an answer for the log and the list of polls. */
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
