import type { Counter } from 'prom-client'
import type { Logger } from '../runtime/logger.ts'
import type { Database } from '../runtime/postgres.ts'
import { blockCalls, takeCall } from './call-budget.ts'
import type { GenerationKey, Keys } from './keys.ts'
import { createProviderBreaker, type ProviderBreaker } from './provider-breaker.ts'
import type { Poll } from './on-call/poll-log.ts'
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

/** What the provider said, or why it was not asked. */
export type Asked = FetchOutcome | { kind: 'not_asked'; reason: string; retryAt: Date }

/** The answer, and the key that it was given to. */
export type Fetched = { asked: Asked; keyName: string | undefined }

export type Ask = {
  requestId: string
  keyName: string | undefined
  reserve: number
  signal: AbortSignal
  /** Called once it is decided whether there is a call for it, before it is made: who comes first gets what is left. */
  onDecided?: () => void
}

export type Fetcher = (ask: Ask) => Promise<Fetched>

const unauthorizedPauseSeconds = 300
const defaultRetryAfterSeconds = 30
const maxPauseSeconds = 3600

/**
 * Asks the provider for a result within the budget of the keys: first with the
 * key that is named, then, while the answer is 404 or the key is refused, with
 * the others that could know it. It is a 404 only when all of them say so.
 */
export function createFetcher(deps: FetcherDeps): Fetcher {
  const breaker = createProviderBreaker()
  return async ({ requestId, keyName, reserve, signal, onDecided = () => {} }) => {
    let last: Fetched | undefined
    for (const key of candidates(deps.keys(), keyName)) {
      const asked = await askWith(deps, { requestId, key, reserve, signal, onDecided, breaker })
      if (endsAsking(asked, key.name === keyName)) return { asked, keyName: key.name }
      if (last === undefined || last.asked.kind === 'not_found') last = { asked, keyName: key.name }
    }
    if (last) return last
    const retryAt = new Date(deps.clock().getTime() + unauthorizedPauseSeconds * 1000)
    return { asked: { kind: 'not_asked', reason: 'no_key', retryAt }, keyName }
  }
}

/** Whether no other key need be asked. The key that is named only has to be waited for, unless it is refused. */
function endsAsking(asked: Asked, named: boolean): boolean {
  if (asked.kind === 'not_asked') return named && asked.reason !== 'unauthorized'
  return asked.kind !== 'not_found' && asked.kind !== 'unauthorized'
}

function candidates(keys: Keys, keyName: string | undefined): GenerationKey[] {
  const usable = keys.all.filter((key) => !key.retired && key.apiKey !== undefined)
  const named = keyName === undefined ? undefined : keys.byName.get(keyName)
  const sameEnvironment = usable.filter((key) => named?.environment === undefined || key.environment === named.environment)
  return sameEnvironment.toSorted((a, b) => Number(b.name === keyName) - Number(a.name === keyName))
}

type AskWith = Required<Omit<Ask, 'keyName'>> & { key: GenerationKey; breaker: ProviderBreaker }

async function askWith(deps: FetcherDeps, { requestId, key, reserve, signal, onDecided, breaker }: AskWith): Promise<Asked> {
  const now = deps.clock()
  const restsUntil = breaker.restsUntil(now)
  if (restsUntil) {
    deps.calls.inc({ operation: 'result', outcome: 'not_asked_provider_down' })
    return { kind: 'not_asked', reason: 'provider_down', retryAt: restsUntil }
  }
  const grant = await takeCall(deps.db, { keyName: key.name, limitPerMinute: deps.fetchRatePerMinute, reserve, now })
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
