import type { Counter } from 'prom-client'
import type { Logger } from '../../runtime/logger.ts'
import type { Database } from '../../runtime/postgres/postgres.ts'
import type { Environment, GenerationKey, Keys } from '../domain/keys.ts'
import { blockCalls, takeCall, type Grant, type KeyHealth, type Purpose } from './call-budget.ts'
import { noteFailing, noteRecovered, restRefusedKey } from './key-health.ts'
import type { PollRecord } from './poll-log.ts'
import { createProviderBreaker, type ProviderBreaker } from './provider-breaker.ts'
import type { FetchOutcome, ProviderClient } from './provider-client.ts'
import { createSpentKeys, type SpentKeys } from './spent-keys.ts'

export type FetcherDeps = {
  db: Database
  client: ProviderClient
  keys: () => Keys
  fetchRatePerMinute: number
  clock: () => Date
  logger: Logger
  calls: Counter<'operation' | 'outcome'>
  /** Gets every poll, with its outcome. */
  onPolled?: (poll: PollRecord) => void
}

/**
 * What the provider answered, or why the poll is postponed. `not_found_yet`: the
 * keys that were tried do not know it, and another that could was not tried.
 */
export type ResultAnswer = FetchOutcome | { kind: 'postponed'; reason: string; retryAt: Date } | { kind: 'not_found_yet'; reason: string }

/** The answer, and the key that it was given to. */
export type Fetched = { answer: ResultAnswer; keyName: string | undefined }

/** Which request, with which keys, and out of whose share of their calls. */
export type ResultLookup = {
  requestId: string
  /** The key that the request was tracked, or its webhook signed, with. */
  keyName: string | undefined
  /** Of the request, as far as it is known where the key is not. */
  environment?: Environment | undefined
  /** Only a webhook signed with a sandbox key names its environment. */
  doubted?: boolean
  purpose: 'landing' | 'reconciling'
  /** Counts up with each poll of the request: which of the other keys are tried goes round by it. */
  turn?: number
  signal: AbortSignal
  /** Called once it is decided whether there is a call for it, before it is made: who comes first gets what is left. */
  onDecided?: () => void
}

export type Fetcher = (lookup: ResultLookup) => Promise<Fetched>

/** Keys are given by whoever runs this. */
const noKeyPauseSeconds = 300
/** So many calls in a row without an answer are no accident of one request. */
const failuresToNote = 3
const defaultRetryAfterSeconds = 30
const maxPauseSeconds = 3600
/** Calls of 10 s one after the other, within the minute for which a request is claimed. */
const maxOthers = 3

/**
 * Fetches the provider's result within the budget of the keys: first with the
 * key that is named, then, while the answer is 404 or the key is refused, with
 * others that could know it, for the little that each key gives to such tries:
 * first those of the same environment, and where all of these say 404 the other's,
 * since who named the key may have been wrong or a forger. A landing takes the 404 of the named key
 * for an answer and leaves the others to the reconciler. It is a 404 only when
 * all that were to be tried give one. Where the calls of the named key are spent, those of a
 * key that is known to be of the same account are used beside them.
 */
export function createFetcher(deps: FetcherDeps): Fetcher {
  const breaker = createProviderBreaker()
  const spent = createSpentKeys()
  // For a named key that is retired, refused or unknown: the key that last knew a request of its.
  const standIns = new Map<string, string>()
  return async (lookup) => {
    const { requestId, keyName, purpose, signal, onDecided = () => {} } = lookup
    const tried: Fetched[] = []
    let onlyStandIn = false
    for (const { key, by, isOwn, isStandIn } of candidates(deps.keys(), lookup, standIns)) {
      if (onlyStandIn && !isStandIn) break
      if (!isOwn && !lookup.doubted && !(tried.length > 0 && tried.every(({ answer }) => answer.kind === 'not_found'))) break
      const answer = await pollWith(deps, { requestId, key, purpose: by, signal, onDecided, breaker, spent })
      const named = key.name === keyName
      if (keyName !== undefined && !named) learn(standIns, { keyName, key, answer })
      if (isFinal(answer, { named, purpose })) return { answer, keyName: key.name }
      tried.push({ answer, keyName: key.name })
      // The key that is named has to be waited for, but that one of its account has a call too.
      onlyStandIn ||= named && answer.kind === 'postponed' && answer.reason !== 'unauthorized'
    }
    return (
      conclude(tried) ?? {
        answer: { kind: 'postponed', reason: 'no_key', retryAt: new Date(deps.clock().getTime() + noKeyPauseSeconds * 1000) },
        keyName,
      }
    )
  }
}

/** Whether no other key need be tried. */
function isFinal(answer: ResultAnswer, { named, purpose }: { named: boolean; purpose: ResultLookup['purpose'] }): boolean {
  if (answer.kind === 'postponed') return answer.reason === 'provider_down'
  if (answer.kind === 'not_found') return named && purpose === 'landing'
  return answer.kind !== 'unauthorized'
}

/** What many answers, none of which was the end, come to. */
function conclude(tried: readonly Fetched[]): Fetched | undefined {
  const silent = tried.find(({ answer }) => answer.kind !== 'not_found')
  const notFound = tried.find(({ answer }) => answer.kind === 'not_found')
  if (!silent || !notFound) return notFound ?? silent
  const reason = silent.answer.kind === 'postponed' ? silent.answer.reason : silent.answer.kind
  return { answer: { kind: 'not_found_yet', reason }, keyName: notFound.keyName }
}

/** One that knows a request of the named key is of the same account; a 404 takes that back, so that invented ids gain nothing by it. */
function learn(
  standIns: Map<string, string>,
  { keyName, key, answer }: { keyName: string; key: GenerationKey; answer: ResultAnswer },
): void {
  if (answer.kind === 'result' || answer.kind === 'running') standIns.set(keyName, key.name)
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
  const standIn = usable.find((key) => key.name === standIns.get(keyName ?? ''))
  const known: Candidate[] = [first, standIn].flatMap((key) =>
    key ? [{ key, by: purpose, isOwn: true, isStandIn: key === standIn && key !== first }] : [],
  )
  const others = usable.filter((key) => key !== first && key !== standIn && (purpose === 'reconciling' || isOwn(key)))
  const start = (turn * maxOthers) % Math.max(1, others.length)
  const inTurn = others.length <= maxOthers ? others : [...others.slice(start), ...others.slice(0, start)].slice(0, maxOthers)
  // Where nobody named a key, no key is another's.
  const by: Purpose = keyName === undefined ? purpose : 'trying'
  const tries: Candidate[] = inTurn.map((key) => ({ key, by, isOwn: isOwn(key), isStandIn: false }))
  return [...known, ...tries.toSorted((a, b) => Number(b.isOwn) - Number(a.isOwn))]
}

type PollWith = Pick<ResultLookup, 'requestId' | 'signal'> & {
  key: GenerationKey
  purpose: Purpose
  onDecided: () => void
  breaker: ProviderBreaker
  spent: SpentKeys
}

async function pollWith(
  deps: FetcherDeps,
  { requestId, key, purpose, signal, onDecided, breaker, spent }: PollWith,
): Promise<ResultAnswer> {
  const pass = breaker.ask(deps.clock())
  if ('restsUntil' in pass) {
    deps.calls.inc({ operation: 'result', outcome: 'not_asked_provider_down' })
    return { kind: 'postponed', reason: 'provider_down', retryAt: pass.restsUntil }
  }
  try {
    const grant = await takeRemembered(deps, { key, purpose, spent })
    if (!grant.ok) {
      deps.calls.inc({ operation: 'result', outcome: `not_asked_${grant.reason}` })
      return { kind: 'postponed', reason: grant.reason, retryAt: grant.retryAt }
    }
    onDecided()
    const started = performance.now()
    const { outcome, rate } = await deps.client.fetchResult(requestId, key, signal)
    const ms = Math.round(performance.now() - started)
    pass.note(outcome.kind !== 'unreachable', deps.clock())
    deps.calls.inc({ operation: 'result', outcome: outcome.kind })
    deps.onPolled?.({ requestId, keyName: key.name, polledAt: deps.clock(), outcome: outcome.kind, detail: detailOf(outcome) })
    deps.logger.info(
      { request_id: requestId, key_name: key.name, operation: 'result', outcome: outcome.kind, detail: detailOf(outcome), ms },
      'provider called',
    )
    await noteHealth(deps, { key, outcome, health: grant.health, failures: breaker.failures(), spent })

    const block = pauseAfter(outcome, rate)
    // From the answer on, not from the call: up to 10 s may lie between them.
    if (block)
      await blockCalls(deps.db, { keyName: key.name, until: new Date(deps.clock().getTime() + block.seconds * 1000), reason: block.reason })
    return outcome
  } finally {
    pass.drop()
  }
}

type Take = { key: GenerationKey; purpose: Purpose; spent: SpentKeys }

/** A call, if there is one; that there is none is only asked again when there may be. */
async function takeRemembered(deps: FetcherDeps, { key, purpose, spent }: Take): Promise<Grant> {
  const now = deps.clock()
  const remembered = spent.find(key.name, purpose, now)
  if (remembered) return remembered
  const grant = await takeCall(deps.db, {
    keyName: key.name,
    limitPerMinute: deps.fetchRatePerMinute,
    purpose,
    now,
    missed: spent.takeMissed(key.name),
  })
  if (!grant.ok) spent.remember(key.name, purpose, grant, now)
  return grant
}

type Health = { key: GenerationKey; outcome: FetchOutcome; health: KeyHealth; failures: number; spent: SpentKeys }

/** What an answer, or that there was none, says of the key and of the provider. */
async function noteHealth(deps: FetcherDeps, { key, outcome, health, failures, spent }: Health): Promise<void> {
  const now = deps.clock()
  const accepted = outcome.kind === 'result' || outcome.kind === 'running' || outcome.kind === 'not_found'
  if (outcome.kind === 'unauthorized') await restRefusedKey(deps.db, { keyName: key.name, health, now })
  else if (outcome.kind === 'unreachable' && failures % failuresToNote === 0) await noteFailing(deps.db, now)
  else if (accepted && (health.failing || health.refusals > 0)) {
    await noteRecovered(deps.db, { keyName: key.name, now })
    spent.forget(key.name)
  }
}

/** What the log and the list of polls show of an answer besides its kind. */
function detailOf(outcome: FetchOutcome): string | undefined {
  switch (outcome.kind) {
    case 'result':
      return outcome.result.status
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

/** An answer of either operation. */
type PausingOutcome = { kind: string; retryAfterSeconds?: number | undefined }

/** How long the key must rest after this answer, by the provider's own word. */
export function pauseAfter(
  outcome: PausingOutcome,
  rate: { remaining: number; resetSeconds: number } | undefined,
): { seconds: number; reason: string } | undefined {
  if (outcome.kind === 'rate_limited') {
    const seconds = outcome.retryAfterSeconds ?? rate?.resetSeconds ?? defaultRetryAfterSeconds
    return { seconds: Math.min(Math.max(1, seconds), maxPauseSeconds), reason: 'rate_limited' }
  }
  if (rate && rate.remaining <= 0) return { seconds: Math.min(Math.max(1, rate.resetSeconds), maxPauseSeconds), reason: 'rate_limit_spent' }
  return undefined
}
