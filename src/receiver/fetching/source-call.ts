import type { Counter } from 'prom-client'
import { HttpError } from '../../platform/http/http.ts'
import type { Logger } from '../../platform/logger.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import type { GenerationKey, Keys } from '../domain/keys.ts'
import { sourceLabel, storedName, type Api } from '../domain/source.ts'
import { takeCall, type Purpose } from './call-budget.ts'
import { noteAnswer, type CallOutcome, type KeyEffect } from './key-health.ts'
import type { SourceClient, Unanswered } from './source-client.ts'

export type CallingDeps = {
  client: SourceClient
  db: Database
  keys: () => Keys
  fetchRatePerMinute: number
  /** The time that replicas share. */
  time: SharedTime
  logger: Logger
  calls: Pick<Counter<'operation' | 'outcome' | 'source_name'>, 'inc'>
}

/** The key may not be called now: see takeCall(). */
type NoCall = { kind: 'no_call'; reason: string; retryAfterSeconds: number }

type SourceCall<Outcome> = {
  operation: 'result' | 'submit' | 'cancel' | 'read'
  key: GenerationKey
  purpose: Purpose
  /** Makes the calls of the operation. */
  call: (api: Api) => Promise<Outcome>
  signal: AbortSignal
  /** The further facts of the log line. `outcome` replaces the kind of the outcome there and in the metric. */
  factsOf: (outcome: Outcome | Unanswered) => { outcome?: string | undefined; [fact: string]: unknown }
  /** Returns the effect on the key. Without this function, the kind of the answer decides. */
  keyEffect?: (outcome: Outcome | Unanswered) => KeyEffect
  /** Called once the call is granted, before it is made. It is not made if this resolves to false. */
  onGranted?: (() => Promise<boolean> | void) | undefined
}

/**
 * Makes one call to a source, if the key has one left: takes it from the budget, makes it, counts and logs it, and
 * records what the answer shows of the key.
 */
export async function callSource<Outcome extends CallOutcome>(
  deps: CallingDeps,
  { operation, key, purpose, call, signal, factsOf, keyEffect, onGranted }: SourceCall<Outcome>,
): Promise<Outcome | Unanswered | NoCall> {
  const { client, db, time, calls, logger, fetchRatePerMinute: limitPerMinute } = deps
  const grant = await takeCall(db, { keyName: key.name, limitPerMinute, purpose, now: time() })
  if (!grant.ok) return { kind: 'no_call', reason: grant.reason, retryAfterSeconds: grant.retryAfterSeconds }
  if ((await onGranted?.()) === false) return { kind: 'no_call', reason: 'not_begun', retryAfterSeconds: 1 }
  const started = performance.now()
  const { outcome, rate, downSeconds } = await client(key, call, signal)
  const { outcome: word = outcome.kind, ...facts } = factsOf(outcome)
  const called = { operation, outcome: word, ...sourceLabel(storedName(key.source)) }
  calls.inc(called)
  const ms = Math.round(performance.now() - started)
  logger.info({ ...facts, key_name: key.name, ...called, ms }, 'provider called')
  const answered = { key, health: grant.health, outcome, rate, downSeconds, effect: keyEffect?.(outcome) }
  await noteAnswer(deps, answered).catch(healthNotUpdated(deps, key))
  return outcome
}

/** For a failed update of a key's health: the answer of the call is still used. */
export function healthNotUpdated({ logger }: Pick<CallingDeps, 'logger'>, { name }: GenerationKey) {
  return (error: unknown): void =>
    logger.error({ err: error, key_name: name }, 'the health of a key was not updated; the next answer updates it')
}

/** The error for a caller that waits for an answer, if the key has no call left. */
export function noCallLeft({ name }: GenerationKey, { reason, retryAfterSeconds }: NoCall): HttpError {
  const seconds = Math.max(1, Math.ceil(retryAfterSeconds))
  return new HttpError(429, 'no_call_left', `the key ${name} has no call left (${reason}): try again in ${seconds} s`, {
    type: 'rate_limit_error',
    headers: { 'retry-after': String(seconds) },
  })
}
