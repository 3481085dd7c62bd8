import { z } from 'zod'
import { jsonOf } from '../../../platform/json-text.ts'
import type { Api, CancelOutcome, FetchOutcome, Job, Submission, SubmitOutcome } from '../../domain/source.ts'
import { answeredOtherwise, canceled, fetched, refusedHere, submitted, unreadable } from '../answers.ts'
import { reportOfFailure, reportOfOutput } from './report.ts'

const segmentPattern = /^(?!\.)[A-Za-z0-9._-]{1,100}$/
/** Models of these owners have one segment more. */
const namespaces: readonly string[] = ['workflows', 'comfy']

/** The segments of a model; undefined for a text that is no model. */
function segmentsOf(model: string | undefined): string[] | undefined {
  const segments = model?.split('/') ?? []
  const least = namespaces.includes(segments[0] ?? '') ? 3 : 2
  return segments.length >= least && segments.every((segment) => segmentPattern.test(segment)) ? segments : undefined
}

const headersOf = (apiKey: string) => ({ authorization: `Key ${apiKey}`, accept: 'application/json' })

const statusSchema = z.object({ status: z.string(), queue_position: z.int().nonnegative().nullish().catch(null) })
const failedSchema = z.object({ error: z.string().nullish(), error_type: z.string().nullish() })

/**
 * Asks for the status, then for the output. The paths contain only the first two or three segments of the model
 * (`pathOf`). The status of a failed job is COMPLETED with an error.
 */
export async function fetchResult({ jobId, model }: Job, { url, apiKey, call, archive }: Api): Promise<FetchOutcome> {
  const path = pathOf({ jobId, model })
  if (path === undefined) return unknownModel
  const job = `${url}/${path}`
  const headers = headersOf(apiKey)

  const answer = await call({ url: `${job}/status`, headers })
  const json = jsonOf(answer.body)
  const outcome = answeredOtherwise(answer) ?? runningOf(json)
  if (outcome !== undefined) return outcome
  const { error, error_type } = failedSchema.safeParse(json).data ?? {}
  if (typeof error === 'string' || typeof error_type === 'string')
    return fetched(reportOfFailure(jobId, model, { error, payload: { error_type: error_type ?? undefined } }))

  const result = await call({ url: job, headers })
  const report = reportOfOutput({ jobId, model }, jsonOf(result.body), archive)
  return answeredOtherwise(result) ?? (typeof report === 'string' ? unreadable(report) : fetched(report))
}

const unknownModel = {
  kind: 'invalid',
  detail: 'calls to fal need the model of the request as owner/app: send it to POST /api/requests',
  isUnsent: true,
} as const

/** The path of a job; undefined if its model is not known. */
function pathOf({ jobId, model }: Job): string | undefined {
  const segments = segmentsOf(model)
  const app = segments?.slice(0, namespaces.includes(segments[0] ?? '') ? 3 : 2).join('/')
  return app === undefined ? undefined : `${app}/requests/${encodeURIComponent(jobId)}`
}

/** `PUT …/cancel`, below owner and app. fal takes it before and during the run. */
export async function cancel(job: Job, { url, apiKey, call }: Api): Promise<CancelOutcome> {
  const path = pathOf(job)
  if (path === undefined) return unknownModel
  const answer = await call({ url: `${url}/${path}/cancel`, method: 'PUT', headers: headersOf(apiKey) })
  const { status } = statusSchema.safeParse(jsonOf(answer.body)).data ?? {}
  return answer.status === 400 && status === 'ALREADY_COMPLETED' ? { kind: 'ended' } : canceled(answer)
}

/** The outcome of a status other than COMPLETED. */
function runningOf(json: unknown): FetchOutcome | undefined {
  const { status, queue_position = null } = statusSchema.safeParse(json).data ?? {}
  if (status === 'COMPLETED') return undefined
  if (status === 'IN_QUEUE' || status === 'IN_PROGRESS')
    return { kind: 'running', status: { status, progress: 0, queue_position } }
  return { kind: 'invalid', detail: 'the status is none of IN_QUEUE, IN_PROGRESS and COMPLETED' }
}

/** Submits a job. fal documents no header for idempotency, so a submit in doubt is not repeated. */
export async function submit(
  { model, input, webhookUrl }: Submission,
  { url, apiKey, call }: Api,
): Promise<SubmitOutcome> {
  const segments = segmentsOf(model)
  if (segments === undefined) return refusedHere('the model must be owner/app, with or without a path')
  return submitted(
    await call({
      url: `${url}/${segments.join('/')}?fal_webhook=${encodeURIComponent(webhookUrl)}`,
      method: 'POST',
      headers: { ...headersOf(apiKey), 'content-type': 'application/json' },
      body: JSON.stringify(input),
    }),
    'request_id',
  )
}
