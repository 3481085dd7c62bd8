import { z } from 'zod'
import { jsonOf } from '../../platform/json-text.ts'
import type { FilesPlace } from '../../platform/settings.ts'
import type { Parsed, UnreadableReason, Report } from '../domain/report.ts'
import { jobIdPattern } from '../domain/request-id.ts'
import {
  maxAnswerBytes,
  type Api,
  type ApiAnswer,
  type CancelOutcome,
  type FetchOutcome,
  type NoResult,
  type Submission,
  type SubmitOutcome,
} from '../domain/source.ts'
import { isStorable } from '../domain/storable.ts'

/** An optional text. A value of another type counts as missing. */
export const text = z.string().optional().catch(undefined)
const idSchema = z.string().regex(jobIdPattern)
const membersSchema = z.record(z.string(), z.unknown())

/** The state of a job, or why it cannot be read. `ENDED`: it has ended, and only a poll shows how. */
export type State = (Pick<Report, 'status'> & Partial<Report>) | 'IN_QUEUE' | 'IN_PROGRESS' | 'ENDED' | UnreadableReason

/** Reads the JSON of a job, which has its id as `id`. Never throws, whatever was sent. */
export function readJob<Read extends { id?: unknown }>(
  json: unknown,
  schema: z.ZodType<Read>,
  stateOf: (job: Read) => State,
): Parsed {
  const { data: job } = schema.safeParse(json)
  if (job === undefined) return { kind: 'unreadable', reason: 'unknown_shape', jobId: undefined }
  const jobId = idSchema.safeParse(job.id).data
  if (jobId === undefined) return { kind: 'unreadable', reason: 'no_request_id', jobId }
  return stateToRead(jobId, stateOf(job))
}

/** The report or the hint that a state makes. A webhook of a running job does not make a poll due. */
export function stateToRead(jobId: string, state: State): Parsed {
  if (typeof state === 'object')
    return { kind: 'report', jobId, report: { jobId, media: [], mediaComplete: true, ...state } }
  if (state === 'ENDED') return { kind: 'hint', jobId, poll: true }
  if (state === 'IN_QUEUE' || state === 'IN_PROGRESS') return { kind: 'hint', jobId, poll: false, status: state }
  return { kind: 'unreadable', reason: state, jobId }
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

/** The outcome of an answer about the job `asked`. A result that Postgres cannot store would fail at every landing. */
export function outcomeOf(read: Parsed, asked: string): FetchOutcome {
  if (read.jobId !== asked) return { kind: 'invalid', detail: 'the answer is for another job' }
  if (read.kind === 'unreadable')
    return { kind: 'invalid', detail: unreadable[read.reason] ?? 'the result contains no media' }
  if (read.kind === 'hint')
    return { kind: 'running', status: { status: read.status ?? 'IN_PROGRESS', progress: 0, queue_position: null } }
  return isStorable(read.report)
    ? { kind: 'result', report: read.report }
    : { kind: 'invalid', detail: 'the result contains values that Postgres cannot store' }
}

const unreadable: Partial<Record<UnreadableReason, string>> = {
  inline_media: 'the result contains base64, which needs MEDIA_ARCHIVE',
  unknown_status: 'the answer has an unknown status',
}

export const keyHeader = (apiKey: string) => ({ authorization: `Bearer ${apiKey}` })
export const bearer = (apiKey: string) => ({ ...keyHeader(apiKey), accept: 'application/json' })

type KeyHeader = { keyHeader?: (apiKey: string) => Record<string, string> }
type Fetching = { path: string; jobId: string; read: (json: unknown, archive?: FilesPlace) => Parsed }

/** Asks for a job by `GET` of a path below the API's URL. The key is a bearer token unless `keyHeader` is given. */
export async function fetchJob(
  { path, jobId, read, keyHeader: withKey = keyHeader }: Fetching & KeyHeader,
  { url, apiKey, call, archive }: Api,
): Promise<FetchOutcome> {
  const answer = await call({ url: `${url}${path}`, headers: { ...withKey(apiKey), accept: 'application/json' } })
  return answeredOtherwise(answer) ?? outcomeOf(read(jsonOf(answer.body), archive), jobId)
}

type Submitting = { path: string; body: unknown; member?: string }

/**
 * Submits a job by `POST` of JSON to a path below the API's URL, to a source that does not recognize a repeated submit.
 * The id of the job is at `member` of the answer. Only an answer from 400 to 499, except 408, shows that the source
 * took nothing.
 */
export async function submitJob(
  { path, body, member = 'id', keyHeader: withKey = keyHeader }: Submitting & KeyHeader,
  { url, apiKey, call }: Api,
): Promise<SubmitOutcome> {
  const headers = { ...withKey(apiKey), accept: 'application/json', 'content-type': 'application/json' }
  const answer = await call({ url: `${url}${path}`, method: 'POST', headers, body: JSON.stringify(body) })
  const { status, retryAfterSeconds } = answer
  const json = jsonOf(answer.body)
  if (status >= 200 && status < 300) {
    const jobId = idSchema.safeParse(membersSchema.safeParse(json).data?.[member]).data
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

/** Submits the members of the input to a path, with the model and the URL of the webhook beside them. */
export async function submitMembers(path: string, submission: Submission, api: Api): Promise<SubmitOutcome> {
  const { model, input, webhookUrl } = submission
  const members = membersSchema.safeParse(input)
  if (!members.success) return refusedHere('the input must be an object')
  return submitJob({ path, body: { ...members.data, model, callback_url: webhookUrl } }, api)
}

/** The outcome of asking for a cancellation. A success promises only that the source tries. */
export function canceled(answer: ApiAnswer): CancelOutcome {
  return answeredOtherwise(answer) ?? { kind: 'asked' }
}

const refusalSchema = z.union([
  z.object({ error: z.object({ message: z.string() }) }).transform(({ error }) => error.message),
  z.object({ error: z.string() }).transform(({ error }) => error),
  z.object({ detail: z.string() }).transform(({ detail }) => detail),
  z.object({ detail: z.array(z.object({ msg: z.string() })).min(1) }).transform(({ detail }) => detail[0]?.msg ?? ''),
])

function textOfRefusal(json: unknown): string {
  const cause = refusalSchema.safeParse(json).data
  return cause !== undefined && cause !== '' && isStorable(cause)
    ? cause
    : 'the source stated no cause that can be stored'
}

/** The outcome of a submit that the source could not take, so it is not called. */
export function refusedHere(message: string): SubmitOutcome {
  const envelope = { error: { type: 'invalid_request_error', code: 'invalid_submit', message } }
  return { kind: 'refused', status: 422, envelope }
}
