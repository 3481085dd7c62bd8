import type { Api, CancelOutcome, FetchOutcome, Job, Submission, SubmitOutcome } from '../../domain/source.ts'
import { bearer, canceled, fetchJob, refusedHere, submitJob } from '../answers.ts'
import { read } from './report.ts'

/** `GET /predictions/{id}`: the status and the result are the same object. */
export async function fetchResult({ jobId }: Job, api: Api): Promise<FetchOutcome> {
  return fetchJob({ path: `/predictions/${encodeURIComponent(jobId)}`, jobId, read }, api)
}

/** `POST /predictions/{id}/cancel`. A prediction that has ended stays as it is. */
export async function cancel({ jobId }: Job, { url, apiKey, call }: Api): Promise<CancelOutcome> {
  const job = `${url}/predictions/${encodeURIComponent(jobId)}`
  return canceled(await call({ url: `${job}/cancel`, method: 'POST', headers: bearer(apiKey) }))
}

const modelPattern = /^(?!\.)[A-Za-z0-9._-]{1,100}\/(?!\.)[A-Za-z0-9._-]{1,100}$/
const versionPattern = /^[0-9a-f]{64}$/

/**
 * Submits to `owner/name`, to `owner/name:version` or to a version. Asks only for the webhook of the end. Replicate
 * documents no header for idempotency: a submit in doubt must not be repeated.
 */
export async function submit({ model, input, webhookUrl }: Submission, api: Api): Promise<SubmitOutcome> {
  const [name = '', version, ...more] = versionPattern.test(model) ? ['', model] : model.split(':')
  const isNamed = modelPattern.test(name) && version === undefined
  const isVersion = version !== undefined && versionPattern.test(version) && (name === '' || modelPattern.test(name))
  if (more.length > 0 || !(isNamed || isVersion))
    return refusedHere('the model must be owner/name, owner/name:version or a version')
  const webhook = { webhook: webhookUrl, webhook_events_filter: ['completed'] }
  const path = isNamed ? `/models/${name}/predictions` : '/predictions'
  return submitJob({ path, body: { ...(!isNamed && { version }), input, ...webhook } }, api)
}
