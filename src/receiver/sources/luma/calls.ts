import { z } from 'zod'
import type { Api, FetchOutcome, Job, Submission, SubmitOutcome } from '../../domain/source.ts'
import { fetchJob, refusedHere, submitJob } from '../answers.ts'
import { read } from './report.ts'

/** Fetches a generation by `GET /generations/{id}`. */
export async function fetchResult({ jobId }: Job, api: Api): Promise<FetchOutcome> {
  return fetchJob({ path: `/generations/${encodeURIComponent(jobId)}`, jobId, read }, api)
}

const inputSchema = z.record(z.string(), z.unknown())

/** The models of pictures are called photon; all others make videos. */
const isOfPictures = (model: string) => model.startsWith('photon')

/** Submits a generation. No header for idempotency is known: a submit in doubt must not be repeated. */
export async function submit({ model, input, webhookUrl }: Submission, api: Api): Promise<SubmitOutcome> {
  const members = inputSchema.safeParse(input)
  if (!members.success) return refusedHere('the input must be an object')
  const path = `/generations/${isOfPictures(model) ? 'image' : 'video'}`
  return submitJob({ path, body: { ...members.data, model, callback_url: webhookUrl } }, api)
}
