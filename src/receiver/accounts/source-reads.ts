import { HttpError } from '../../platform/http/http.ts'
import { jsonOf } from '../../platform/json-text.ts'
import { usableKey, type GenerationKey } from '../domain/keys.ts'
import type { Api } from '../domain/source.ts'
import type { KeyEffect } from '../fetching/key-health.ts'
import { callSource, noCallLeft, type CallingDeps } from '../fetching/source-call.ts'

/** A read-only call to the default source: its catalog, a model, an estimate or the account. */
type SourceRead = { path: string; body?: { input: Record<string, unknown> } }

/** The answer: 200, or a 4xx with the error envelope of the source. */
export type ReadAnswer = { status: number; body: unknown; retryAfterSeconds?: number | undefined }

type ReadOutcome =
  | ({ kind: 'answered' | 'unauthorized' | 'rate_limited' } & ReadAnswer)
  | { kind: 'invalid'; detail: string }

/** `keyEffect`: replaces the effect of an answer on the health of its key. */
type SourceReadsDeps = CallingDeps & { cut: AbortSignal; keyEffect?: () => KeyEffect }

export type SourceReads = (read: SourceRead, keyName: string | undefined) => Promise<ReadAnswer>

/**
 * Reads from the source for services without an API key, within the budget of the key's submits. Answers are cached
 * for a minute, and concurrent calls for the same thing share one. Throws HttpError 422 unknown_key, 429 if the key has
 * no call left, and 502 if the source gives no answer.
 */
export function createSourceReads(deps: SourceReadsDeps): SourceReads {
  const kept = new Map<string, { answer: Promise<ReadAnswer>; until: number }>()
  return (read, keyName) => {
    const key = usableKey(deps.keys(), keyName, { ofDefaultSource: true })
    const name = JSON.stringify([key.name, key.apiKey, read])
    const known = kept.get(name)
    if (known && performance.now() < known.until) return known.answer
    const answer = answerTo(deps, read, key)
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

async function answerTo(deps: SourceReadsDeps, read: SourceRead, key: GenerationKey): Promise<ReadAnswer> {
  const outcome = await callSource(deps, {
    operation: 'read',
    key,
    purpose: 'submitting',
    call: (api) => readFrom(api, read),
    signal: deps.cut,
    ...(deps.keyEffect && { keyEffect: deps.keyEffect }),
    factsOf: (of) => ({
      path: read.path,
      ...('status' in of ? { outcome: String(of.status) } : { outcome: 'unreachable', detail: of.detail }),
    }),
  })
  if (outcome.kind === 'no_call') throw noCallLeft(key, outcome)
  if ('status' in outcome) return outcome
  const { detail } = outcome
  throw new HttpError(502, 'provider_unreachable', `the provider gave no usable answer (${detail}): try again`)
}

async function readFrom({ url, apiKey, call }: Api, { path, body }: SourceRead): Promise<ReadOutcome> {
  const post = body && { method: 'POST' as const, body: JSON.stringify(body) }
  const headers = {
    authorization: `Bearer ${apiKey}`,
    accept: 'application/json',
    ...(body && { 'content-type': 'application/json' }),
  }
  const { status, body: text, retryAfterSeconds } = await call({ url: `${url}${path}`, headers, ...post })
  if (status !== 200 && (status < 400 || status >= 500)) return { kind: 'invalid', detail: `it answered ${status}` }
  const json = jsonOf(text)
  if (json === undefined) return { kind: 'invalid', detail: 'the answer is not JSON' }
  if (status === 429) return { kind: 'rate_limited', status, body: json, retryAfterSeconds }
  const kind = status === 401 ? 'unauthorized' : 'answered'
  return { kind, status, body: json, retryAfterSeconds: undefined }
}
