import { jsonOf } from '../../../platform/json-text.ts'
import type { Api, FetchOutcome, Job, Submission, SubmitOutcome } from '../../domain/source.ts'
import { answeredOtherwise, fetched, refusedHere, submitted } from '../answers.ts'
import { read } from './report.ts'

export const keyHeader = (apiKey: string) => ({ 'x-goog-api-key': apiKey })
const headersOf = (apiKey: string) => ({ ...keyHeader(apiKey), accept: 'application/json' })

/** The name of an operation: a path such as `models/veo/operations/abc`. */
const namePattern = /^(?!\.)[A-Za-z0-9._-]+(?:\/(?!\.)[A-Za-z0-9._-]+)+$/
const modelPattern = /^(?!\.)[A-Za-z0-9._-]{1,100}$/

/** Fetches an operation by `GET /v1beta/{name}`. The links in its answer need the key. */
export async function fetchResult({ jobId, model }: Job, { url, apiKey, call }: Api): Promise<FetchOutcome> {
  if (!namePattern.test(jobId)) return { kind: 'invalid', detail: 'the id is not the name of an operation' }
  const answer = await call({ url: `${url}/v1beta/${jobId}`, headers: headersOf(apiKey) })
  const outcome = answeredOtherwise(answer)
  if (outcome !== undefined) return outcome
  const report = read(jsonOf(answer.body), jobId, model)
  if (report === undefined) return { kind: 'invalid', detail: 'the answer is not of this operation, or has no video' }
  return report === 'running'
    ? { kind: 'running', status: { status: 'IN_PROGRESS', progress: 0, queue_position: null } }
    : fetched(report)
}

/**
 * Submits by `POST /v1beta/models/{model}:predictLongRunning`. The webhook is a setting of the project, so the submit
 * names none. No header for idempotency is known: a submit in doubt must not be repeated.
 */
export async function submit({ model, input }: Submission, { url, apiKey, call }: Api): Promise<SubmitOutcome> {
  if (!modelPattern.test(model)) return refusedHere('the model must be a name without a path')
  return submitted(
    await call({
      url: `${url}/v1beta/models/${model}:predictLongRunning`,
      method: 'POST',
      headers: { ...headersOf(apiKey), 'content-type': 'application/json' },
      body: JSON.stringify(input),
    }),
    'name',
  )
}
