import { describeFailure, readBounded, retryAfterOf } from '../../platform/outward/answers.ts'
import type { GenerationKey } from '../domain/keys.ts'
import { maxAnswerBytes, type Api, type ApiAnswer, type Call } from '../domain/source.ts'

export type RateAnswer = { remaining: number; resetSeconds: number }

/** `rate`: the rate limit that the last call reported. `downSeconds`: the Retry-After of the last call, if it was a 5xx. */
type Answered<Outcome> = { outcome: Outcome; rate: RateAnswer | undefined; downSeconds?: number | undefined }

/** For one operation: all its calls, with their whole answers. */
export const callDeadlineMs = 10_000

/** No answer came. `isUnsent`: nothing of the request was sent. */
export type Unanswered = { kind: 'unreachable'; detail: string; isUnsent: boolean }

/** Makes the calls of one operation to the API of the key's source, within 10 s in all. Never throws. */
export type SourceClient = <Outcome>(
  key: GenerationKey,
  operation: (api: Api) => Promise<Outcome>,
  signal: AbortSignal,
) => Promise<Answered<Outcome | Unanswered>>

type SourceClientDeps = {
  /** The URL of the default source's API. */
  baseUrl: string
  fetch: typeof globalThis.fetch
  clock: () => Date
}

export function createSourceClient({ baseUrl, fetch, clock }: SourceClientDeps): SourceClient {
  return async (key, operation, signal) => {
    const deadline = AbortSignal.timeout(callDeadlineMs)
    let rate: RateAnswer | undefined
    let downSeconds: number | undefined
    const call: Call = async ({ url, ...request }): Promise<ApiAnswer> => {
      const within = AbortSignal.any([deadline, signal])
      const response = await fetch(url, { ...request, redirect: 'manual', signal: within })
      const body = await readBounded(response, maxAnswerBytes)
      const retryAfterSeconds = retryAfterOf(response.headers.get('retry-after'), clock())
      rate = rateOf(response)
      downSeconds = response.status >= 500 ? retryAfterSeconds : undefined
      return { status: response.status, body: body?.toString('utf8'), retryAfterSeconds }
    }
    try {
      const { apiUrl = baseUrl, archive } = key.source
      return { outcome: await operation({ url: apiUrl, apiKey: key.apiKey ?? '', call, archive }), rate, downSeconds }
    } catch (error) {
      const detail = deadline.aborted ? `no complete answer within ${callDeadlineMs / 1000} s` : describeFailure(error)
      return { outcome: { kind: 'unreachable', detail, isUnsent: isUnsent(error) }, rate: undefined }
    }
  }
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
