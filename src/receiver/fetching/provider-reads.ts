import type { Counter } from 'prom-client'
import { HttpError } from '../../platform/http/http.ts'
import type { Logger } from '../../platform/logger.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import { usableKey, type GenerationKey, type Keys } from '../domain/keys.ts'
import { takeCall, type Grant } from './call-budget.ts'
import { noteAnswer } from './key-health.ts'
import type { ProviderRead, ReadAnswer, SourceClient } from './source-client.ts'

export type ProviderReadsDeps = {
  db: Database
  client: Pick<SourceClient, 'read'>
  keys: () => Keys
  fetchRatePerMinute: number
  time: SharedTime
  logger: Logger
  calls: Pick<Counter<'operation' | 'outcome'>, 'inc'>
  cut: AbortSignal
}

export type ProviderReads = (read: ProviderRead, keyName: string | undefined) => Promise<ReadAnswer>

/**
 * Reads from the provider for services without an API key, within the budget of the key's submits. Answers are cached
 * for a minute, and concurrent calls for the same thing share one. Throws HttpError 422 unknown_key, 429 if the key has
 * no call left, and 502 if the provider gives no answer.
 */
export function createProviderReads(deps: ProviderReadsDeps): ProviderReads {
  const kept = new Map<string, { answer: Promise<ReadAnswer>; until: number }>()
  return (read, keyName) => {
    const key = usableKey(deps.keys(), keyName, { isOfFirst: true })
    const name = JSON.stringify([key.name, key.apiKey, read])
    const known = kept.get(name)
    if (known && performance.now() < known.until) return known.answer
    const answer = callProvider(deps, read, key)
    kept.delete(name)
    // The catalog may change at any time (spec, Model), so answers are cached only this long.
    kept.set(name, { answer, until: performance.now() + 60_000 })
    const [oldest] = kept.keys()
    // A catalog has at most a few hundred models, and estimates are small.
    if (kept.size > 500 && oldest !== undefined) kept.delete(oldest)
    const forget = () => {
      if (kept.get(name)?.answer === answer) kept.delete(name)
    }
    // 401, 403 and 429 concern the key, and may not apply to the next call.
    answer.then(({ status }) => {
      if (status === 401 || status === 403 || status === 429) forget()
    }, forget)
    return answer
  }
}

async function callProvider(deps: ProviderReadsDeps, read: ProviderRead, key: GenerationKey): Promise<ReadAnswer> {
  const grant = await grantedCall(deps, key)
  const started = performance.now()
  const { outcome, rate } = await deps.client.read(read, key, deps.cut)
  const answer = 'status' in outcome ? outcome : undefined
  const [called, detail] = 'status' in outcome ? [String(outcome.status)] : ['unreachable', outcome.detail]
  deps.calls.inc({ operation: 'read', outcome: called })
  const ms = Math.round(performance.now() - started)
  const facts = { key_name: key.name, operation: 'read', path: read.path, outcome: called, detail, ms }
  deps.logger.info(facts, 'provider called')
  if (answer === undefined)
    throw new HttpError(502, 'provider_unreachable', `the provider gave no usable answer (${detail}): try again`)
  await noteAnswer(deps, { key, health: grant.health, outcome, rate })
  return answer
}

/** Takes a call within the budget of the key's submits. Throws HttpError 429 if there is none. */
export async function grantedCall(
  { db, time, fetchRatePerMinute: limitPerMinute }: Pick<ProviderReadsDeps, 'db' | 'time' | 'fetchRatePerMinute'>,
  { name: keyName }: GenerationKey,
): Promise<Extract<Grant, { ok: true }>> {
  const grant = await takeCall(db, { keyName, limitPerMinute, purpose: 'submitting', now: time() })
  if (grant.ok) return grant
  const seconds = Math.max(1, Math.ceil(grant.retryAfterSeconds))
  throw new HttpError(
    429,
    'no_call_left',
    `the key ${keyName} has no call left (${grant.reason}): try again in ${seconds} s`,
    { type: 'rate_limit_error', headers: { 'retry-after': String(seconds) } },
  )
}
