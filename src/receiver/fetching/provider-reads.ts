import type { Counter } from 'prom-client'
import { HttpError } from '../../platform/http/http.ts'
import type { Logger } from '../../platform/logger.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import { namesOfSource, usableKey, type GenerationKey, type Keys } from '../domain/keys.ts'
import { takeCall, type Grant } from './call-budget.ts'
import { noteAnswer } from './key-health.ts'
import { callDeadlineMs, describeFailure, rateOf, readBounded, retryAfterOf } from './source-client.ts'

export type ProviderReadsDeps = {
  db: Database
  baseUrl: string
  fetch: typeof globalThis.fetch
  keys: () => Keys
  fetchRatePerMinute: number
  clock: () => Date
  time: SharedTime
  logger: Logger
  calls: Pick<Counter<'operation' | 'outcome'>, 'inc'>
  cut: AbortSignal
}

/** A read-only call to the provider: the catalog, a model, an estimate or the account. */
export type ProviderRead = { path: string; body?: { input: Record<string, unknown> } }

/** The provider's answer: 200, or its own 4xx with its error envelope. */
export type ReadAnswer = { status: number; body: unknown; retryAfterSeconds?: number | undefined }

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
  const { db, time } = deps
  const grant = await grantedCall(deps, key)
  const started = performance.now()
  const { answer, response, failure } = await post(deps, read, key)
  const outcome = answer === undefined ? 'unreachable' : String(answer.status)
  deps.calls.inc({ operation: 'read', outcome })
  const ms = Math.round(performance.now() - started)
  deps.logger.info(
    { key_name: key.name, operation: 'read', path: read.path, outcome, detail: failure, ms },
    'provider called',
  )
  if (answer === undefined || response === undefined)
    throw new HttpError(502, 'provider_unreachable', `the provider gave no usable answer (${failure}): try again`)
  const { status, retryAfterSeconds } = answer
  await noteAnswer(db, {
    keyName: key.name,
    keyNames: namesOfSource(deps.keys(), key.source),
    health: grant.health,
    now: time(),
    outcome: { kind: status === 429 ? 'rate_limited' : 'read', retryAfterSeconds },
    rate: rateOf(response),
    says: status === 401 ? 'refused' : status === 429 ? 'nothing' : 'accepted',
  })
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

type Called = { answer?: ReadAnswer; response?: Response; failure?: string }

async function post(
  { baseUrl, fetch, clock, cut }: ProviderReadsDeps,
  { path, body }: ProviderRead,
  key: GenerationKey,
): Promise<Called> {
  const deadline = AbortSignal.timeout(callDeadlineMs)
  try {
    const response = await fetch(`${baseUrl}${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers: {
        authorization: `Bearer ${key.apiKey}`,
        accept: 'application/json',
        ...(body !== undefined && { 'content-type': 'application/json' }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      redirect: 'manual',
      signal: AbortSignal.any([deadline, cut]),
    })
    const text = await readBounded(response)
    const { status } = response
    if (status !== 200 && (status < 400 || status >= 500)) return { response, failure: `it answered ${status}` }
    const retryAfterSeconds = status === 429 ? retryAfterOf(response.headers.get('retry-after'), clock()) : undefined
    return { response, answer: { status, body: JSON.parse(text ?? ''), retryAfterSeconds } }
  } catch (error) {
    if (error instanceof SyntaxError) return { failure: 'the answer is not JSON' }
    const isLate = deadline.aborted
    return { failure: isLate ? `no complete answer within ${callDeadlineMs / 1000} s` : describeFailure(error) }
  }
}
