import { namesOfSource, type GenerationKey } from '../domain/keys.ts'
import { sourceLabel, storedName, type FetchOutcome, type Job } from '../domain/source.ts'
import type { Purpose } from './call-budget.ts'
import { noteFailing } from './key-health.ts'
import type { PollRecord } from './poll-log.ts'
import type { ProviderBreaker } from './provider-breaker.ts'
import { callProvider, healthNotUpdated, type CallingDeps } from './provider-call.ts'
import type { SourceClient } from './source-client.ts'

export type CallDeps = CallingDeps & {
  client: Pick<SourceClient, 'fetchResult'>
  clock: () => Date
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
  const postponed = (reason: string) => {
    const outcome = `not_asked_${reason}`
    deps.calls.inc({ operation: 'result', outcome, ...sourceLabel(storedName(key.source)) })
    return { kind: 'postponed', reason } as const
  }
  const pass = breaker.enter(deps.clock())
  if (!pass) return postponed('provider_down')
  try {
    // The receiver cuts calls itself in order to stop, which says nothing about the provider or the key.
    const isCut = ({ kind }: FetchOutcome) => kind === 'unreachable' && signal.aborted
    const outcome = await callProvider(deps, {
      operation: 'result',
      key,
      purpose,
      call: () => deps.client.fetchResult(job, key, signal),
      factsOf: (of) => ({ request_id: requestId, ...(isCut(of) ? { outcome: 'cut' } : { detail: detailOf(of) }) }),
      onGranted: onDecided,
    })
    if (outcome.kind === 'no_call') return postponed(outcome.reason)
    if (isCut(outcome)) return { kind: 'postponed', reason: 'stopping' }
    const polledAt = deps.clock()
    pass.note(outcome.kind !== 'unreachable', polledAt)
    deps.onPolled?.({ requestId, keyName: key.name, polledAt, outcome: outcome.kind, detail: detailOf(outcome) })
    // This many unanswered calls in a row are not caused by a single request.
    if (outcome.kind === 'unreachable' && breaker.failures() % 3 === 0) {
      const keyNames = namesOfSource(deps.keys(), key.source)
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
