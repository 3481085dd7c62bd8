import type { Counter } from 'prom-client'
import type { Logger } from '../../platform/logger.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import { namesOfSource, type GenerationKey, type Keys } from '../domain/keys.ts'
import { sourceLabel, storedName, type FetchOutcome, type Job } from '../domain/source.ts'
import { takeCall, type Purpose } from './call-budget.ts'
import { noteAnswer, noteFailing } from './key-health.ts'
import type { PollRecord } from './poll-log.ts'
import type { ProviderBreaker } from './provider-breaker.ts'
import type { SourceClient } from './source-client.ts'

export type CallDeps = {
  db: Database
  client: Pick<SourceClient, 'fetchResult'>
  keys: () => Keys
  fetchRatePerMinute: number
  clock: () => Date
  /** The time that replicas share. */
  time: SharedTime
  logger: Logger
  calls: Pick<Counter<'operation' | 'outcome' | 'source_name'>, 'inc'>
  /** Receives every poll, with its outcome. */
  onPolled?: (poll: PollRecord) => void
}

/**
 * The provider's answer, or why the poll is postponed. `not_found_yet`: the keys that were tried do not know the
 * request, and another key that may know it was not tried.
 */
export type ResultAnswer =
  | FetchOutcome
  | { kind: 'postponed'; reason: string }
  | { kind: 'not_found_yet'; reason: string }

type Call = {
  requestId: string
  job: Job
  signal: AbortSignal
  key: GenerationKey
  purpose: Purpose
  /** Called once the call is granted, before it is made. */
  onDecided: () => void
  breaker: ProviderBreaker
}

/** Makes one call for the result of a request, if the provider and the key may be called now. */
export async function callForResult(
  deps: CallDeps,
  { requestId, job, key, purpose, signal, onDecided, breaker }: Call,
): Promise<ResultAnswer> {
  const source = sourceLabel(storedName(key.source))
  const count = (outcome: string) => deps.calls.inc({ operation: 'result', outcome, ...source })
  const pass = breaker.enter(deps.clock())
  if (!pass) {
    count('not_asked_provider_down')
    return { kind: 'postponed', reason: 'provider_down' }
  }
  try {
    const grant = await takeCall(deps.db, {
      keyName: key.name,
      limitPerMinute: deps.fetchRatePerMinute,
      purpose,
      now: deps.time(),
    })
    if (!grant.ok) {
      count(`not_asked_${grant.reason}`)
      return { kind: 'postponed', reason: grant.reason }
    }
    onDecided()
    const started = performance.now()
    const { outcome, rate } = await deps.client.fetchResult(job, key, signal)
    // The receiver cut the call itself in order to stop, which says nothing about the provider or the key.
    const isCut = outcome.kind === 'unreachable' && signal.aborted
    const called = isCut ? { outcome: 'cut' } : { outcome: outcome.kind, detail: detailOf(outcome) }
    count(called.outcome)
    const ms = Math.round(performance.now() - started)
    const facts = { request_id: requestId, key_name: key.name, ...source, operation: 'result', ...called, ms }
    deps.logger.info(facts, 'provider called')
    if (isCut) return { kind: 'postponed', reason: 'stopping' }
    pass.note(outcome.kind !== 'unreachable', deps.clock())
    deps.onPolled?.({
      requestId,
      keyName: key.name,
      polledAt: deps.clock(),
      outcome: outcome.kind,
      detail: detailOf(outcome),
    })
    try {
      await noteAnswer(deps, { key, health: grant.health, outcome, rate })
      // This many unanswered calls in a row are not caused by a single request.
      if (outcome.kind === 'unreachable' && breaker.failures() % 3 === 0)
        await noteFailing(deps.db, { keyNames: namesOfSource(deps.keys(), key.source), now: deps.time() })
    } catch (error) {
      // The answer of the call is still used.
      deps.logger.error(
        { err: error, key_name: key.name, outcome: outcome.kind },
        'the health of a key was not updated; the next answer updates it',
      )
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
