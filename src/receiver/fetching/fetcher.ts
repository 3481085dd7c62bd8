import type { Environment, GenerationKey, Keys } from '../domain/keys.ts'
import type { Purpose } from './call-budget.ts'
import { createProviderBreaker } from './provider-breaker.ts'
import { callForResult, type CallDeps, type ResultAnswer } from './result-call.ts'

export type FetcherDeps = CallDeps & { keys: () => Keys }

/** The answer, and the key that it was given to. */
export type Fetched = { answer: ResultAnswer; keyName: string | undefined }

/** A request, with what decides which keys are tried. */
export type ResultLookup = {
  requestId: string
  /** The key that the request was tracked, or its webhook signed, with. */
  keyName: string | undefined
  /** Of the request, as far as it is known where the key is not. */
  environment?: Environment | undefined
  /** The environment is known only from a webhook that a sandbox key signed. */
  onlySandboxSigned?: boolean
  purpose: Exclude<Purpose, 'submitting'>
  /** Counts up with each poll of the request: which of the other keys are tried goes round by it. */
  turn?: number
  signal: AbortSignal
  /** Called once it is decided whether there is a call for it, before it is made: who comes first gets what is left. */
  onDecided?: () => void
}

export type Fetcher = (lookup: ResultLookup) => Promise<Fetched>

/** Each is a call of up to 10 s, one after the other, while the request waits. */
const maxOthers = 3
const maxStandIns = 1000

/**
 * Fetches the provider's result within the budget of the keys: first with the
 * key that is named, then, while the answer is 404 or the key is refused, with
 * others that could know it, for the little that each key gives to such tries:
 * first those of the same environment, and where all of these say 404 the other's,
 * since who named the key may have been wrong or a forger. It is a 404 only when
 * all that were to be tried give one. Where the calls of the named key are spent, those of a
 * key that is known to be of the same account are used beside them.
 */
export function createFetcher(deps: FetcherDeps): Fetcher {
  const breaker = createProviderBreaker()
  // For a named key that is retired, refused or unknown: the key that last knew a request of its.
  const standIns = new Map<string, string>()
  return async (lookup) => {
    const { requestId, keyName, signal, onDecided = () => {} } = lookup
    const tried: Fetched[] = []
    let onlyStandIn = false
    for (const { key, by, isOwn, isStandIn } of candidates(deps.keys(), lookup, standIns)) {
      if (onlyStandIn && !isStandIn) break
      const isUnknownSoFar = tried.length > 0 && tried.every(({ answer }) => answer.kind === 'not_found')
      if (!isOwn && !lookup.onlySandboxSigned && !isUnknownSoFar) break
      const answer = await callForResult(deps, {
        requestId,
        key,
        purpose: by,
        signal,
        onDecided,
        breaker,
      })
      const named = key.name === keyName
      if (keyName !== undefined && !named && isOwn) learn(standIns, { keyName, key, answer })
      if (isFinal(answer)) return { answer, keyName: key.name }
      tried.push({ answer, keyName: key.name })
      // The key that is named has to be waited for, but that one of its account has a call too.
      onlyStandIn ||= named && answer.kind === 'postponed' && answer.reason !== 'unauthorized'
    }
    return conclude(tried) ?? { answer: { kind: 'postponed', reason: 'no_key' }, keyName }
  }
}

/** Whether no other key need be tried. */
function isFinal(answer: ResultAnswer): boolean {
  if (answer.kind === 'postponed') return answer.reason === 'provider_down' || answer.reason === 'stopping'
  return answer.kind !== 'not_found' && answer.kind !== 'unauthorized'
}

/** What many answers, none of which was the end, come to. */
function conclude(tried: readonly Fetched[]): Fetched | undefined {
  const silent = tried.find(({ answer }) => answer.kind !== 'not_found')
  const notFound = tried.find(({ answer }) => answer.kind === 'not_found')
  if (!silent || !notFound) return notFound ?? silent
  const reason = silent.answer.kind === 'postponed' ? silent.answer.reason : silent.answer.kind
  return { answer: { kind: 'not_found_yet', reason }, keyName: notFound.keyName }
}

/** A key that knows a request of the named key is of its account. A 404 takes that back: invented ids gain nothing. */
function learn(
  standIns: Map<string, string>,
  { keyName, key, answer }: { keyName: string; key: GenerationKey; answer: ResultAnswer },
): void {
  if (answer.kind === 'result' || answer.kind === 'running') {
    // A service may track under any name: what was learnt is learnt again.
    if (standIns.size >= maxStandIns) standIns.clear()
    standIns.set(keyName, key.name)
  }
  if (answer.kind === 'not_found' && standIns.get(keyName) === key.name) standIns.delete(keyName)
}

/** `isOwn`: of the environment of the request, as far as that is known. */
type Candidate = { key: GenerationKey; by: Purpose; isOwn: boolean; isStandIn: boolean }

function candidates(
  keys: Keys,
  { keyName, environment, purpose, turn = 0 }: ResultLookup,
  standIns: ReadonlyMap<string, string>,
): Candidate[] {
  const usable = keys.all.filter((key) => !key.retired && key.apiKey !== undefined)
  const named = keyName === undefined ? undefined : keys.byName.get(keyName)
  const own = named?.environment ?? environment
  const isOwn = (key: GenerationKey) => own === undefined || key.environment === own
  const first = usable.find((key) => key.name === keyName)
  // Of the same environment only: the secret of a sandbox key can sign any id, and must not spend a live key's calls.
  const standIn = usable.find((key) => isOwn(key) && key.name === standIns.get(keyName ?? ''))
  // Anybody may have kept the secret of a key of unknown environment: it gets a tenth of another key's calls.
  const ofStandIn: Purpose = own === undefined ? 'trying' : purpose
  const known: Candidate[] = [first, standIn].flatMap((key) =>
    key ? [{ key, by: key === first ? purpose : ofStandIn, isOwn: true, isStandIn: key !== first }] : [],
  )
  const others = usable.filter((key) => key !== first && key !== standIn)
  const start = (turn * maxOthers) % Math.max(1, others.length)
  const inTurn =
    others.length <= maxOthers ? others : [...others.slice(start), ...others.slice(0, start)].slice(0, maxOthers)
  // Where nobody named a key, no key is another's.
  const by: Purpose = keyName === undefined ? purpose : 'trying'
  const tries: Candidate[] = inTurn.map((key) => ({ key, by, isOwn: isOwn(key), isStandIn: false }))
  return [...known, ...tries.toSorted((a, b) => Number(b.isOwn) - Number(a.isOwn))]
}
