import { jsonOf } from '../../platform/json-text.ts'
import type { GenerationKey } from '../domain/keys.ts'
import {
  maxAnswerBytes,
  type Api,
  type ApiAnswer,
  type Call,
  type CancelOutcome,
  type FetchOutcome,
  type Job,
  type SourceKind,
  type Submission,
  type SubmitOutcome,
} from '../domain/source.ts'

export type RateAnswer = { remaining: number; resetSeconds: number }

/** `rate`: the rate limit that the last call reported. */
export type Answered<Outcome> = { outcome: Outcome; rate: RateAnswer | undefined }

/** For one operation: all its calls, with their whole answers. */
export const callDeadlineMs = 10_000

/** The calls to the sources of keys, each within 10 s in all. None of them throws. */
export type SourceClient = {
  fetchResult: (job: Job, key: GenerationKey, signal: AbortSignal) => Promise<Answered<FetchOutcome>>
  submit: (submission: Submission, key: GenerationKey, signal: AbortSignal) => Promise<Answered<SubmitOutcome>>
  cancel: (asked: Cancellation, key: GenerationKey, signal: AbortSignal) => Promise<Answered<CancelOutcome>>
  read: (read: ProviderRead, key: GenerationKey, signal: AbortSignal) => Promise<Answered<ReadOutcome>>
}

/** A read-only call to the default source: its catalog, a model, an estimate or the account. */
export type ProviderRead = { path: string; body?: { input: Record<string, unknown> } }

/** The answer: 200, or a 4xx with the error envelope of the source. */
export type ReadAnswer = { status: number; body: unknown; retryAfterSeconds?: number | undefined }

export type ReadOutcome =
  | ({ kind: 'answered' | 'unauthorized' | 'rate_limited' } & ReadAnswer)
  | { kind: 'invalid' | 'unreachable'; detail: string }

/** A job, with the call of its source that cancels one. */
export type Cancellation = { cancel: NonNullable<SourceKind['cancel']>; job: Job }

export type SourceClientDeps = {
  /** The URL of the default source's API. */
  baseUrl: string
  fetch: typeof globalThis.fetch
  clock: () => Date
}

export function createSourceClient(deps: SourceClientDeps): SourceClient {
  return {
    fetchResult: (job, key, signal) =>
      answerOf(deps, { key, signal, ask: (api) => key.source.kind.fetchResult(job, api) }),
    submit: (submission, key, signal) =>
      answerOf(deps, { key, signal, ask: (api) => key.source.kind.submit(submission, api) }),
    cancel: ({ cancel, job }, key, signal) => answerOf(deps, { key, signal, ask: (api) => cancel(job, api) }),
    read: (read, key, signal) => answerOf(deps, { key, signal, ask: (api) => readFrom(api, read) }),
  }
}

type Asked<Outcome> = { key: GenerationKey; signal: AbortSignal; ask: (api: Api) => Promise<Outcome> }

async function answerOf<Outcome>(
  { baseUrl, fetch, clock }: SourceClientDeps,
  { key, signal, ask }: Asked<Outcome>,
): Promise<Answered<Outcome | { kind: 'unreachable'; detail: string; isUnsent: boolean }>> {
  const deadline = AbortSignal.timeout(callDeadlineMs)
  let rate: RateAnswer | undefined
  const call: Call = async ({ url, ...request }): Promise<ApiAnswer> => {
    const within = AbortSignal.any([deadline, signal])
    const response = await fetch(url, { ...request, redirect: 'manual', signal: within })
    const body = await readBounded(response)
    rate = rateOf(response)
    return {
      status: response.status,
      body,
      retryAfterSeconds: retryAfterOf(response.headers.get('retry-after'), clock()),
    }
  }
  try {
    const { apiUrl = baseUrl, archive } = key.source
    return { outcome: await ask({ url: apiUrl, apiKey: key.apiKey ?? '', call, archive }), rate }
  } catch (error) {
    const detail = deadline.aborted ? `no complete answer within ${callDeadlineMs / 1000} s` : describeFailure(error)
    return { outcome: { kind: 'unreachable', detail, isUnsent: isUnsent(error) }, rate: undefined }
  }
}

async function readFrom({ url, apiKey, call }: Api, { path, body }: ProviderRead): Promise<ReadOutcome> {
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

/** Reads the text of an answer; undefined if it is too large, in which case the rest is not read. */
export async function readBounded(response: Response): Promise<string | undefined> {
  if (!response.body) return ''
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of response.body) {
    bytes += chunk.length
    if (bytes > maxAnswerBytes) return undefined
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}

/** The seconds that a `Retry-After` asks for; undefined without one, and for one that cannot be read. */
export function retryAfterOf(text: string | null, now: Date): number | undefined {
  if (text === null) return undefined
  if (/^\d{1,9}$/.test(text)) return Number(text)
  const at = Date.parse(text)
  return Number.isNaN(at) ? undefined : Math.max(0, Math.ceil((at - now.getTime()) / 1000))
}

/** Reads `RateLimit-Remaining` and `RateLimit-Reset`: the calls left, and the seconds until there are more. */
function rateOf(response: Response): RateAnswer | undefined {
  const remaining = Number(response.headers.get('ratelimit-remaining') ?? Number.NaN)
  const resetSeconds = Number(response.headers.get('ratelimit-reset') ?? Number.NaN)
  return Number.isFinite(remaining) && Number.isFinite(resetSeconds) ? { remaining, resetSeconds } : undefined
}

/** Failures to connect. Nothing of the request was sent. */
const connectFailures: ReadonlySet<unknown> = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'UND_ERR_CONNECT_TIMEOUT',
])

function isUnsent(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : undefined
  return cause instanceof Error && 'code' in cause && connectFailures.has(cause.code)
}

export function describeFailure(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  if (!(error.cause instanceof Error)) return error.message
  const { message } = error.cause
  return message === 'other side closed'
    ? 'the connection was closed without an answer'
    : `${error.message}: ${message}`
}
