import type { z } from 'zod'
import type { GenerationKey } from '../domain/keys.ts'
import {
  receivedResultSchema,
  receivedStatusSchema,
  type ReceivedResult,
  type ReceivedStatus,
} from '../domain/received.ts'
import { isStorable } from '../domain/storable.ts'

/** Every outcome of fetching a result. Errors are outcomes, too. */
export type FetchOutcome =
  | { kind: 'result'; result: ReceivedResult }
  | { kind: 'running'; status: ReceivedStatus }
  | { kind: 'not_found' }
  | { kind: 'unauthorized' }
  | { kind: 'rate_limited'; retryAfterSeconds: number | undefined }
  | { kind: 'unreachable'; detail: string }
  | { kind: 'invalid'; detail: string }

export type RateAnswer = { remaining: number; resetSeconds: number }

export type ProviderAnswer = { outcome: FetchOutcome; rate: RateAnswer | undefined }

/** For one call, including its whole answer. */
export const callDeadlineMs = 10_000
const maxAnswerBytes = 4 * 1024 * 1024

export type ProviderClient = {
  /** `GET /v1/requests/{id}` (spec, Endpoints: result), once, within 10 s in all. Never throws. */
  fetchResult: (requestId: string, key: GenerationKey, signal: AbortSignal) => Promise<ProviderAnswer>
}

export function createProviderClient({
  baseUrl,
  fetch,
  clock,
}: {
  baseUrl: string
  fetch: typeof globalThis.fetch
  clock: () => Date
}): ProviderClient {
  return {
    fetchResult: async (requestId, key, signal) => {
      const deadline = AbortSignal.timeout(callDeadlineMs)
      try {
        const response = await fetch(`${baseUrl}/v1/requests/${requestId}`, {
          headers: { authorization: `Bearer ${key.apiKey}`, accept: 'application/json' },
          redirect: 'manual',
          signal: AbortSignal.any([deadline, signal]),
        })
        const body = await readBounded(response)
        const outcome = classify(response, body, { requestId, now: clock() })
        return { outcome, rate: rateOf(response) }
      } catch (error) {
        const detail = deadline.aborted
          ? `no complete answer within ${callDeadlineMs / 1000} s`
          : describeFailure(error)
        return { outcome: { kind: 'unreachable', detail }, rate: undefined }
      }
    },
  }
}

function classify(
  response: Response,
  body: string | undefined,
  { requestId, now }: { requestId: string; now: Date },
): FetchOutcome {
  switch (response.status) {
    case 200:
    case 202:
      return body === undefined
        ? { kind: 'invalid', detail: `the answer is larger than ${maxAnswerBytes} bytes` }
        : parse(response.status, body, requestId)
    case 401:
    case 403:
      return { kind: 'unauthorized' }
    case 404:
      return { kind: 'not_found' }
    case 429:
      return { kind: 'rate_limited', retryAfterSeconds: retryAfterOf(response, now) }
    default:
      return response.status >= 500
        ? { kind: 'unreachable', detail: `answered ${response.status}` }
        : { kind: 'invalid', detail: `answered ${response.status}, which is not part of the API` }
  }
}

function parse(status: 200 | 202, body: string, requestId: string): FetchOutcome {
  let json: unknown
  try {
    json = JSON.parse(body)
  } catch {
    return { kind: 'invalid', detail: 'the answer is not JSON' }
  }
  if (status === 202) {
    const running = receivedStatusSchema.safeParse(json)
    return running.success && running.data.request_id === requestId
      ? { kind: 'running', status: running.data }
      : { kind: 'invalid', detail: 'the status body does not match the schema' }
  }
  const parsed = receivedResultSchema.safeParse(json)
  if (!parsed.success)
    return {
      kind: 'invalid',
      detail: `the result does not match the schema: ${worstOf(parsed.error.issues)}`.slice(0, 500),
    }
  if (parsed.data.request_id !== requestId) return { kind: 'invalid', detail: 'the result is of another request' }
  if (!fitsPostgres(parsed.data))
    return { kind: 'invalid', detail: 'the result contains values that Postgres cannot store' }
  return { kind: 'result', result: parsed.data }
}

type Issue = z.core.$ZodIssue

/** Describes the first error in a result. An output of unknown kind is compared with the nearest kind. */
function worstOf(issues: readonly Issue[]): string {
  const found = issues.flatMap((issue) => [issue, ...innerOf(issue)]).filter(({ code }) => code !== 'invalid_union')
  const worst =
    found.find(({ code }) => code !== 'invalid_type') ??
    found.toSorted((a, b) => b.path.length - a.path.length)[0] ??
    issues[0]
  return `${worst?.path.join('.')} ${worst?.message}`
}

function innerOf(issue: Issue): Issue[] {
  if (issue.code !== 'invalid_union') return []
  return issue.errors.flat().map((inner) => ({ ...inner, path: [...issue.path, ...inner.path] }))
}

const maxInteger = 2_147_483_647
/** The year 0, and offsets that only ISO 8601 knows. */
const foreignTime = /^0000|[+-](?:1[6-9]|2[0-3]):\d\d$/

/** Returns false for values that the columns would refuse. Such a result would fail at every landing. */
function fitsPostgres(result: ReceivedResult): boolean {
  const items = result.status === 'COMPLETED' ? result.output.items : []
  const times = [result.created_at ?? '', result.completed_at ?? '']
  return (
    isStorable(result) &&
    items.every(({ width = 0, height = 0 }) => width <= maxInteger && height <= maxInteger) &&
    !times.some((time) => foreignTime.test(time))
  )
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

export function retryAfterOf(response: Response, now: Date): number | undefined {
  const text = response.headers.get('retry-after')
  if (text === null) return undefined
  if (/^\d{1,9}$/.test(text)) return Number(text)
  const at = Date.parse(text)
  return Number.isNaN(at) ? undefined : Math.max(0, Math.ceil((at - now.getTime()) / 1000))
}

/** Reads `RateLimit-Remaining` and `RateLimit-Reset`: the calls left, and the seconds until there are more. */
export function rateOf(response: Response): RateAnswer | undefined {
  const remaining = Number(response.headers.get('ratelimit-remaining') ?? Number.NaN)
  const resetSeconds = Number(response.headers.get('ratelimit-reset') ?? Number.NaN)
  return Number.isFinite(remaining) && Number.isFinite(resetSeconds) ? { remaining, resetSeconds } : undefined
}

export function describeFailure(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  return error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message
}
