import { z } from 'zod'
import type { Api, FetchOutcome, Submission } from '../../domain/source.ts'
import {
  answeredOtherwise,
  outcomeOf,
  jsonOf,
  refusedHere,
  submitted,
  type Job,
  type SubmitOutcomeWithoutCost,
} from '../answers.ts'
import { read } from './report.ts'

const headersOf = (apiKey: string) => ({ authorization: `Bearer ${apiKey}`, accept: 'application/json' })

/** `GET /videos/{id}`. */
export async function fetchResult({ jobId }: Job, { url, apiKey, call }: Api): Promise<FetchOutcome> {
  const answer = await call({ url: `${url}/videos/${encodeURIComponent(jobId)}`, headers: headersOf(apiKey) })
  return answeredOtherwise(answer) ?? outcomeOf(read(jsonOf(answer.body)), jobId)
}

const inputSchema = z.record(z.string(), z.unknown())

/** `POST /videos`. No header for idempotency is known: a submit in doubt must not be repeated. */
export async function submit(
  { model, input, webhookUrl }: Submission,
  { url, apiKey, call }: Api,
): Promise<SubmitOutcomeWithoutCost> {
  const members = inputSchema.safeParse(input)
  if (!members.success) return refusedHere('the input must be an object')
  return submitted(
    await call({
      url: `${url}/videos`,
      method: 'POST',
      headers: { ...headersOf(apiKey), 'content-type': 'application/json' },
      body: JSON.stringify({ ...members.data, model, callback_url: webhookUrl }),
    }),
    'id',
  )
}
