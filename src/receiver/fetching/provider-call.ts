import type { Counter } from 'prom-client'
import type { Logger } from '../../platform/logger.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import type { GenerationKey, Keys } from '../domain/keys.ts'
import { sourceLabel, storedName } from '../domain/source.ts'
import { takeCall, type Grant, type Purpose } from './call-budget.ts'
import type { Answered } from './source-client.ts'

/** The dependencies of every call to a source. */
export type CallingDeps = {
  db: Database
  keys: () => Keys
  fetchRatePerMinute: number
  /** The time that replicas share. */
  time: SharedTime
  logger: Logger
  calls: Pick<Counter<'operation' | 'outcome' | 'source_name'>, 'inc'>
}

/** Asks for a call with this key (takeCall). */
export function grantFor(
  { db, time, fetchRatePerMinute: limitPerMinute }: Pick<CallingDeps, 'db' | 'time' | 'fetchRatePerMinute'>,
  { name: keyName }: GenerationKey,
  purpose: Purpose,
): Promise<Grant> {
  return takeCall(db, { keyName, limitPerMinute, purpose, now: time() })
}

type GrantedCall<Outcome> = {
  operation: 'result' | 'submit' | 'cancel' | 'read'
  key: GenerationKey
  call: () => Promise<Answered<Outcome>>
  /** The further facts of the log line. `outcome` replaces the kind of the outcome there and in the metric. */
  factsOf: (outcome: Outcome) => { outcome?: string | undefined; [fact: string]: unknown }
}

/** Makes a granted call, counts it and logs it. */
export async function makeCall<Outcome extends { kind: string }>(
  { calls, logger }: Pick<CallingDeps, 'calls' | 'logger'>,
  { operation, key, call, factsOf }: GrantedCall<Outcome>,
): Promise<Answered<Outcome>> {
  const started = performance.now()
  const answered = await call()
  const { outcome = answered.outcome.kind, ...facts } = factsOf(answered.outcome)
  const called = { operation, outcome, ...sourceLabel(storedName(key.source)) }
  calls.inc(called)
  const ms = Math.round(performance.now() - started)
  logger.info({ ...facts, key_name: key.name, ...called, ms }, 'provider called')
  return answered
}
