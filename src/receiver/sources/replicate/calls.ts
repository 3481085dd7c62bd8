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

/** `GET /predictions/{id}`: the status and the result are the same object. */
export async function fetchResult({ jobId }: Job, { url, apiKey, call }: Api): Promise<FetchOutcome> {
  const answer = await call({ url: `${url}/predictions/${encodeURIComponent(jobId)}`, headers: headersOf(apiKey) })
  return answeredOtherwise(answer) ?? outcomeOf(read(jsonOf(answer.body)), jobId)
}

const modelPattern = /^(?!\.)[A-Za-z0-9._-]{1,100}\/(?!\.)[A-Za-z0-9._-]{1,100}$/
const versionPattern = /^[0-9a-f]{64}$/

/**
 * Submits to `owner/name`, to `owner/name:version` or to a version. Asks only for the webhook of the end. Replicate
 * documents no header for idempotency: a submit in doubt must not be repeated.
 */
export async function submit(
  { model, input, webhookUrl }: Submission,
  { url, apiKey, call }: Api,
): Promise<SubmitOutcomeWithoutCost> {
  const [name = '', version, ...more] = versionPattern.test(model) ? ['', model] : model.split(':')
  const isNamed = modelPattern.test(name) && version === undefined
  const isVersion = version !== undefined && versionPattern.test(version) && (name === '' || modelPattern.test(name))
  if (more.length > 0 || !(isNamed || isVersion))
    return refusedHere('the model must be owner/name, owner/name:version or a version')
  const webhook = { webhook: webhookUrl, webhook_events_filter: ['completed'] }
  return submitted(
    await call({
      url: isNamed ? `${url}/models/${name}/predictions` : `${url}/predictions`,
      method: 'POST',
      headers: { ...headersOf(apiKey), 'content-type': 'application/json' },
      body: JSON.stringify({ ...(!isNamed && { version }), input, ...webhook }),
    }),
    'id',
  )
}
