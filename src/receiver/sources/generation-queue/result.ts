import type { z } from 'zod'
import { jsonOf } from '../../../platform/json-text.ts'
import { plainWords } from '../../../platform/plain-words.ts'
import type { Api, FetchOutcome, Job } from '../../domain/source.ts'
import { isStorable } from '../../domain/storable.ts'
import { answeredOtherwise, bearer } from '../answers.ts'
import { receivedResultSchema, receivedStatusSchema, type ReceivedResult } from './received.ts'
import { reportOfResult } from './to-report.ts'

/** Fetches a result by `GET /v1/requests/{id}` (spec, Endpoints: result). */
export async function fetchResult({ jobId: requestId }: Job, { url, apiKey, call }: Api): Promise<FetchOutcome> {
  const answer = await call({ url: `${url}/v1/requests/${requestId}`, headers: bearer(apiKey) })
  return answeredOtherwise(answer) ?? parseAnswer(answer.status, answer.body, requestId)
}

function parseAnswer(status: number, body: string | undefined, requestId: string): FetchOutcome {
  const json = jsonOf(body)
  if (json === undefined) return { kind: 'invalid', detail: 'the answer is not JSON' }
  if (status === 202) {
    const running = receivedStatusSchema.safeParse(json)
    return running.success && running.data.request_id === requestId
      ? { kind: 'running', status: running.data }
      : { kind: 'invalid', detail: 'the status body does not match the schema' }
  }
  const parsed = receivedResultSchema.safeParse(json, plainWords)
  if (!parsed.success)
    return {
      kind: 'invalid',
      detail: `the result does not match the schema: ${worstOf(parsed.error.issues)}`.slice(0, 500),
    }
  if (parsed.data.request_id !== requestId) return { kind: 'invalid', detail: 'the result is of another request' }
  if (!fitsPostgres(parsed.data))
    return { kind: 'invalid', detail: 'the result contains values that Postgres cannot store' }
  return { kind: 'result', report: reportOfResult(parsed.data) }
}

type Issue = z.core.$ZodIssue

/** Describes one error in a result: the first that is not a wrong type, else the deepest. */
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

/** Times that Postgres refuses although ISO 8601 allows them: the year 0, and offsets of 16 hours and more. */
const foreignTime = /^0000|[+-](?:1[6-9]|2[0-3]):\d\d$/

/** Returns false for values that the columns would refuse. Such a result would fail at every landing. */
function fitsPostgres(result: ReceivedResult): boolean {
  const times = [result.created_at ?? '', result.completed_at ?? '']
  return isStorable(result) && !times.some((time) => foreignTime.test(time))
}
