import type { Counter } from 'prom-client'
import type { Logger } from '../../runtime/logger.ts'
import type { Database } from '../../runtime/postgres/postgres.ts'
import { blockCalls, takeCall, type Purpose } from './call-budget.ts'
import type { Environment, GenerationKey, Keys } from '../domain/keys.ts'
import { createProviderBreaker, type ProviderBreaker } from './provider-breaker.ts'
import type { Poll } from './poll-log.ts'
import type { FetchOutcome, ProviderClient } from './provider-client.ts'

export type FetcherDeps = {
  db: Database
  client: ProviderClient
  keys: () => Keys
  fetchRatePerMinute: number
  clock: () => Date
  logger: Logger
  calls: Counter<'operation' | 'outcome'>
  /** Told of every question that was put to the provider. */
  onAsked?: (poll: Poll) => void
}

/**
 * What the provider said, or why it was not asked. `not_found_yet`: those keys
 * that were asked do not know it, and another that could was not asked.
 */
export type Asked = FetchOutcome | { kind: 'not_asked'; reason: string; retryAt: Date } | { kind: 'not_found_yet'; reason: string }

/** The answer, and the key that it was given to. */
export type Fetched = { asked: Asked; keyName: string | undefined }

export type Ask = {
  requestId: string
  /** The key that the request was tracked, or its webhook signed, with. */
  keyName: string | undefined
  /** Of the request, as far as it is known where the key is not. */
  environment?: Environment | undefined
  /** Nobody but a webhook signed with a sandbox key says of what environment it is. */
  doubted?: boolean
  purpose: 'landing' | 'reconciling'
  /** Counts up with each time that this is asked: who of the others is asked goes round by it. */
  turn?: number
  signal: AbortSignal
  /** Called once it is decided whether there is a call for it, before it is made: who comes first gets what is left. */
  onDecided?: () => void
}

export type Fetcher = (ask: Ask) => Promise<Fetched>

const unauthorizedPauseSeconds = 300
const defaultRetryAfterSeconds = 30
const maxPauseSeconds = 3600
/** Calls of 10 s one after the other, within the minute for which a request is claimed. */
const maxOthers = 3

/**
 * Asks the provider for a result within the budget of the keys: first with the
 * key that is named, then, while the answer is 404 or the key is refused, with
 * others that could know it, for the little that each key gives to such tries:
 * first those of the same environment, and where all of these say 404 the other's,
 * since who named the key may have been wrong or a forger. A landing takes the 404 of the named key
 * for an answer and leaves the others to the reconciler. It is a 404 only when
 * all that were to be asked say so.
 */
export function createFetcher(deps: FetcherDeps): Fetcher {
  const breaker = createProviderBreaker()
  // For a named key that is retired, refused or unknown: the key that last knew a request of its.
  const standIns = new Map<string, string>()
  return async (ask) => {
    const { requestId, keyName, purpose, signal, onDecided = () => {} } = ask
    const heard: Fetched[] = []
    for (const { key, by, isOwn } of candidates(deps.keys(), ask, standIns)) {
      if (!isOwn && !ask.doubted && !(heard.length > 0 && heard.every(({ asked }) => asked.kind === 'not_found'))) break
      const asked = await askWith(deps, { requestId, key, purpose: by, signal, onDecided, breaker })
      const named = key.name === keyName
      if (keyName !== undefined && !named) learn(standIns, { keyName, key, asked })
      if (endsAsking(asked, { named, purpose })) return { asked, keyName: key.name }
      heard.push({ asked, keyName: key.name })
    }
    return conclude(heard) ?? { asked: { kind: 'not_asked', reason: 'no_key', retryAt: new Date(deps.clock().getTime() + unauthorizedPauseSeconds * 1000) }, keyName }
  }
}

/** Whether no other key need be asked. The key that is named only has to be waited for, unless it is refused. */
function endsAsking(asked: Asked, { named, purpose }: { named: boolean; purpose: Ask['purpose'] }): boolean {
  if (asked.kind === 'not_asked') return named && asked.reason !== 'unauthorized'
  if (asked.kind === 'not_found') return named && purpose === 'landing'
  return asked.kind !== 'unauthorized'
}

/** What many answers, none of which was the end, come to. */
function conclude(heard: readonly Fetched[]): Fetched | undefined {
  const silent = heard.find(({ asked }) => asked.kind !== 'not_found')
  const notFound = heard.find(({ asked }) => asked.kind === 'not_found')
  if (!silent || !notFound) return notFound ?? silent
  const reason = silent.asked.kind === 'not_asked' ? silent.asked.reason : silent.asked.kind
  return { asked: { kind: 'not_found_yet', reason }, keyName: notFound.keyName }
}

/** One that knows a request of the named key is of the same account; a 404 takes that back, so that invented ids gain nothing by it. */
function learn(standIns: Map<string, string>, { keyName, key, asked }: { keyName: string; key: GenerationKey; asked: Asked }): void {
  if (asked.kind === 'result' || asked.kind === 'running') standIns.set(keyName, key.name)
  if (asked.kind === 'not_found' && standIns.get(keyName) === key.name) standIns.delete(keyName)
}

/** `isOwn`: of the environment of the request, as far as that is known. */
type Candidate = { key: GenerationKey; by: Purpose; isOwn: boolean }

function candidates(keys: Keys, { keyName, environment, purpose, turn = 0 }: Ask, standIns: ReadonlyMap<string, string>): Candidate[] {
  const usable = keys.all.filter((key) => !key.retired && key.apiKey !== undefined)
  const named = keyName === undefined ? undefined : keys.byName.get(keyName)
  const own = named?.environment ?? environment
  const isOwn = (key: GenerationKey) => own === undefined || key.environment === own
  const first = usable.find((key) => key.name === keyName)
  const standIn = usable.find((key) => key.name === standIns.get(keyName ?? ''))
  const known: Candidate[] = [first, standIn].flatMap((key) => (key ? [{ key, by: purpose, isOwn: true }] : []))
  const others = usable.filter((key) => key !== first && key !== standIn && (purpose === 'reconciling' || isOwn(key)))
  const start = (turn * maxOthers) % Math.max(1, others.length)
  const inTurn = others.length <= maxOthers ? others : [...others.slice(start), ...others.slice(0, start)].slice(0, maxOthers)
  // Where nobody named a key, no key is another's.
  const by: Purpose = keyName === undefined ? purpose : 'trying'
  const tries: Candidate[] = inTurn.map((key) => ({ key, by, isOwn: isOwn(key) }))
  return [...known, ...tries.toSorted((a, b) => Number(b.isOwn) - Number(a.isOwn))]
}

type AskWith = Pick<Ask, 'requestId' | 'signal'> & { key: GenerationKey; purpose: Purpose; onDecided: () => void; breaker: ProviderBreaker }

async function askWith(deps: FetcherDeps, { requestId, key, purpose, signal, onDecided, breaker }: AskWith): Promise<Asked> {
  const now = deps.clock()
  const restsUntil = breaker.restsUntil(now)
  if (restsUntil) {
    deps.calls.inc({ operation: 'result', outcome: 'not_asked_provider_down' })
    return { kind: 'not_asked', reason: 'provider_down', retryAt: restsUntil }
  }
  const grant = await takeCall(deps.db, { keyName: key.name, limitPerMinute: deps.fetchRatePerMinute, purpose, now })
  if (!grant.ok) {
    deps.calls.inc({ operation: 'result', outcome: `not_asked_${grant.reason}` })
    return { kind: 'not_asked', reason: grant.reason, retryAt: grant.retryAt }
  }
  onDecided()
  const started = performance.now()
  const { outcome, rate } = await deps.client.fetchResult(requestId, key, signal)
  const ms = Math.round(performance.now() - started)
  breaker.note(outcome.kind !== 'unreachable', deps.clock())
  deps.calls.inc({ operation: 'result', outcome: outcome.kind })
  deps.onAsked?.({ requestId, keyName: key.name, polledAt: deps.clock(), outcome: outcome.kind, detail: detailOf(outcome) })
  deps.logger.info({ request_id: requestId, key_name: key.name, operation: 'result', outcome: outcome.kind, detail: detailOf(outcome), ms }, 'provider called')

  const block = pauseAfter(outcome, rate)
  // From the answer on, not from the question: up to 10 s may lie between them.
  if (block) await blockCalls(deps.db, { keyName: key.name, until: new Date(deps.clock().getTime() + block.seconds * 1000), reason: block.reason })
  return outcome
}

/** What is to be said of an answer besides its kind. */
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

/** How long the key must rest after this answer: the provider's own word, or ours where it refused the key. */
export function pauseAfter(outcome: PausingOutcome, rate: { remaining: number; resetSeconds: number } | undefined): { seconds: number; reason: string } | undefined {
  if (outcome.kind === 'unauthorized') return { seconds: unauthorizedPauseSeconds, reason: 'unauthorized' }
  if (outcome.kind === 'rate_limited') {
    const seconds = outcome.retryAfterSeconds ?? rate?.resetSeconds ?? defaultRetryAfterSeconds
    return { seconds: Math.min(Math.max(1, seconds), maxPauseSeconds), reason: 'rate_limited' }
  }
  if (rate && rate.remaining <= 0) return { seconds: Math.min(Math.max(1, rate.resetSeconds), maxPauseSeconds), reason: 'rate_limit_spent' }
  return undefined
}
