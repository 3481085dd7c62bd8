import { jsonOf } from '../../../platform/json-text.ts'
import { errorEnvelopeSchema, submittedSchema, type ErrorEnvelope } from '../../../wire/schemas.ts'
import type { Api, ApiAnswer, Submission, SubmitOutcome } from '../../domain/source.ts'
import { isStorable } from '../../domain/storable.ts'

/** Submits by `POST /v1/models/{model}` (spec, Endpoints: submit). */
export async function submit(
  { model, input, webhookUrl, idempotencyKey }: Submission,
  { url, apiKey, call }: Api,
): Promise<SubmitOutcome> {
  return classify(
    await call({
      url: `${url}/v1/models/${encodeURIComponent(model)}`,
      method: 'POST',
      headers: {
        authorization: `Bearer ${apiKey}`,
        'content-type': 'application/json',
        'idempotency-key': idempotencyKey,
      },
      body: JSON.stringify({ input, webhook_url: webhookUrl }),
    }),
  )
}

/** Replaces a refusal that Postgres cannot store. Otherwise the submit would be repeated until it expires. */
const unstorable: ErrorEnvelope = {
  error: {
    type: 'invalid_request_error',
    code: 'unreadable_answer',
    message: 'the provider refused this submit with a text that cannot be stored',
  },
}

function classify({ status, body, retryAfterSeconds }: ApiAnswer): SubmitOutcome {
  const json = jsonOf(body)
  if (status === 200) {
    const submitted = submittedSchema.safeParse(json)
    // Repeating the key returns the same answer, so an unreadable answer is worth another try.
    return submitted.success
      ? { kind: 'submitted', jobId: submitted.data.request_id, cost: submitted.data.cost }
      : { kind: 'unreachable', detail: 'the answer does not match the schema' }
  }
  if (status === 429) return { kind: 'rate_limited', retryAfterSeconds }
  const envelope = errorEnvelopeSchema.safeParse(json)
  if (status === 409 && envelope.data?.error.code === 'request_in_progress') return { kind: 'in_progress' }
  if (status >= 400 && status < 500 && envelope.success)
    return {
      kind: status === 401 || status === 403 ? 'unauthorized' : 'refused',
      status,
      envelope: isStorable(envelope.data) ? envelope.data : unstorable,
    }
  return { kind: 'unreachable', detail: `answered ${status}` }
}
