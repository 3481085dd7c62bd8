import { z } from 'zod'
import { jsonOf } from '../../platform/json-text.ts'
import type { FilesPlace } from '../../platform/settings.ts'
import type { Hint, Parsed, UnreadableReason, Report } from '../domain/report.ts'
import {
  maxAnswerBytes,
  type Api,
  type ApiAnswer,
  type CancelOutcome,
  type FetchOutcome,
  type NoResult,
  type SubmitOutcome,
} from '../domain/source.ts'
import { isStorable } from '../domain/storable.ts'
import { jobIdOf } from './ids.ts'

/** A job as a webhook or an answer describes it: the result, the state of a running job, or why it cannot be read. */
export type Read =
  | { ok: true; report: Report }
  | { ok: true; report: undefined; jobId: string; status: 'IN_QUEUE' | 'IN_PROGRESS' }
  | Extract<Parsed, { ok: false }>

/** Parses a webhook that has the body of a poll. A webhook of a running job does not make a poll due. */
export function webhookOf(read: Read): Parsed | Hint {
  if (!read.ok || read.report !== undefined) return read
  return { ok: true, report: undefined, jobId: read.jobId, poll: false }
}

/** The outcome of an answer that is no result; undefined for a 200 or a 202 with a body. */
export function answeredOtherwise({ status, body, retryAfterSeconds }: ApiAnswer): NoResult | undefined {
  switch (status) {
    case 200:
    case 202:
      return body === undefined
        ? { kind: 'invalid', detail: `the answer is larger than ${maxAnswerBytes} bytes` }
        : undefined
    case 401:
    case 403:
      return { kind: 'unauthorized' }
    case 404:
      return { kind: 'not_found' }
    case 429:
      return { kind: 'rate_limited', retryAfterSeconds }
    default:
      return status >= 500
        ? { kind: 'unreachable', detail: `answered ${status}` }
        : { kind: 'invalid', detail: `answered ${status}, which is not part of the API` }
  }
}

/** The outcome of an answer about the job `asked`. */
export function outcomeOf(read: Read, asked: string): FetchOutcome {
  const jobId = read.ok && read.report !== undefined ? read.report.jobId : read.jobId
  if (jobId !== asked) return { kind: 'invalid', detail: 'the answer is for another job' }
  if (!read.ok) return unreadable(read.reason)
  if (read.report !== undefined) return fetched(read.report)
  return { kind: 'running', status: { status: read.status, progress: 0, queue_position: null } }
}

/** The outcome of an answer about the right job without a report. */
export function unreadable(reason: UnreadableReason): NoResult {
  if (reason === 'inline_media')
    return { kind: 'invalid', detail: 'the result contains base64, which needs MEDIA_ARCHIVE' }
  const detail = reason === 'unknown_shape' ? 'the result contains no media' : 'the answer has an unknown status'
  return { kind: 'invalid', detail }
}

export const keyHeader = (apiKey: string) => ({ authorization: `Bearer ${apiKey}` })
export const bearer = (apiKey: string) => ({ ...keyHeader(apiKey), accept: 'application/json' })

/** Asks for a job by `GET` of a path below the API's URL, with the key as a bearer token. */
export async function fetchJob(
  { path, jobId, read }: { path: string; jobId: string; read: (json: unknown, archive?: FilesPlace) => Read },
  { url, apiKey, call, archive }: Api,
): Promise<FetchOutcome> {
  const answer = await call({ url: `${url}${path}`, headers: bearer(apiKey) })
  return answeredOtherwise(answer) ?? outcomeOf(read(jsonOf(answer.body), archive), jobId)
}

/** Submits a job by `POST` of JSON to a path below the API's URL. Its answer has the job's id as `id`. */
export async function submitJob(
  { path, body }: { path: string; body: object },
  { url, apiKey, call }: Api,
): Promise<SubmitOutcome> {
  const headers = { ...bearer(apiKey), 'content-type': 'application/json' }
  return submitted(await call({ url: `${url}${path}`, method: 'POST', headers, body: JSON.stringify(body) }), 'id')
}

/** The outcome of asking for a cancellation. A success promises only that the source tries. */
export function canceled(answer: ApiAnswer): CancelOutcome {
  return answeredOtherwise(answer) ?? { kind: 'asked' }
}

/** The outcome of a result. A result that Postgres cannot store would fail at every landing. */
export function fetched(report: Report): FetchOutcome {
  return isStorable(report)
    ? { kind: 'result', report }
    : { kind: 'invalid', detail: 'the result contains values that Postgres cannot store' }
}

/**
 * The outcome of a submit to a source that does not recognize a repeated one, with the id of the job at `member` of its
 * answer. Only an answer from 400 to 499, except 408, shows that the source took nothing.
 */
export function submitted(answer: ApiAnswer, member: string): SubmitOutcome {
  const { status, body, retryAfterSeconds } = answer
  const json = jsonOf(body)
  if (status >= 200 && status < 300) {
    const jobId = jobIdOf(z.record(z.string(), z.unknown()).safeParse(json).data?.[member])
    return jobId === undefined
      ? { kind: 'unreachable', detail: `the answer contains no ${member}` }
      : { kind: 'submitted', jobId, cost: undefined }
  }
  if (status === 429) return { kind: 'rate_limited', retryAfterSeconds }
  if (status < 400 || status >= 500 || status === 408) return { kind: 'unreachable', detail: `answered ${status}` }
  const message = textOfRefusal(json)
  const envelope = { error: { type: 'source_error', code: `http_${status}`, message } }
  return { kind: status === 401 || status === 403 ? 'unauthorized' : 'refused', status, envelope }
}

const refusalSchema = z.union([
  z.object({ error: z.object({ message: z.string() }) }).transform(({ error }) => error.message),
  z.object({ error: z.string() }).transform(({ error }) => error),
  z.object({ detail: z.string() }).transform(({ detail }) => detail),
  z.object({ detail: z.array(z.object({ msg: z.string() })).min(1) }).transform(({ detail }) => detail[0]?.msg ?? ''),
])

function textOfRefusal(json: unknown): string {
  const text = refusalSchema.safeParse(json).data
  return text !== undefined && text !== '' && isStorable(text) ? text : 'the source stated no cause that can be stored'
}

/** The outcome of a submit that the source could not take, so it is not called. */
export function refusedHere(message: string): SubmitOutcome {
  const envelope = { error: { type: 'invalid_request_error', code: 'invalid_submit', message } }
  return { kind: 'refused', status: 422, envelope }
}
