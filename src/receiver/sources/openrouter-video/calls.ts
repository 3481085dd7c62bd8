import { z } from 'zod'
import type { Api, FetchOutcome, Job, Submission, SubmitOutcome } from '../../domain/source.ts'
import { fetchJob, refusedHere, submitJob } from '../answers.ts'
import { read } from './report.ts'

/** `GET /videos/{id}`. */
export async function fetchResult({ jobId }: Job, api: Api): Promise<FetchOutcome> {
  return fetchJob({ path: `/videos/${encodeURIComponent(jobId)}`, jobId, read }, api)
}

const inputSchema = z.record(z.string(), z.unknown())

/** Submits by `POST /videos`. No header for idempotency is known, so a submit in doubt is not repeated. */
export async function submit({ model, input, webhookUrl }: Submission, api: Api): Promise<SubmitOutcome> {
  const members = inputSchema.safeParse(input)
  if (!members.success) return refusedHere('the input must be an object')
  return submitJob({ path: '/videos', body: { ...members.data, model, callback_url: webhookUrl } }, api)
}
