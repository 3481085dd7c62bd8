import { errorEnvelopeSchema, submittedSchema, type ErrorEnvelope, type Submitted } from '../../wire/schemas.ts'
import type { GenerationKey } from '../domain/keys.ts'
import { isStorable } from '../domain/storable.ts'
import { describeFailure, rateOf, readBounded, retryAfterOf, type RateAnswer } from '../fetching/provider-client.ts'

/**
 * The outcomes of posting a generation. `submitted` and `refused` answer the Idempotency-Key, and are final.
 * `unauthorized` (401, 403) answers the API key: it says nothing about an earlier attempt.
 */
export type SubmitOutcome =
  | { kind: 'submitted'; submitted: Submitted }
  | { kind: 'refused' | 'unauthorized'; status: number; envelope: ErrorEnvelope }
  | { kind: 'in_progress' }
  | { kind: 'rate_limited'; retryAfterSeconds: number | undefined }
  | { kind: 'unreachable'; detail: string }

export type Submission = { model: string; input: unknown; webhookUrl: string; idempotencyKey: string }

export type SubmitAnswer = { outcome: SubmitOutcome; rate: RateAnswer | undefined }

export type SubmitClient = (submission: Submission, key: GenerationKey, signal: AbortSignal) => Promise<SubmitAnswer>

const deadlineMs = 10_000

/** `POST /v1/models/{model}` (spec, Endpoints: submit), once, within 10 s in all. Never throws. */
export function createSubmitClient({
  baseUrl,
  fetch,
  clock,
}: {
  baseUrl: string
  fetch: typeof globalThis.fetch
  clock: () => Date
}): SubmitClient {
  return async ({ model, input, webhookUrl, idempotencyKey }, key, signal) => {
    const deadline = AbortSignal.timeout(deadlineMs)
    try {
      const response = await fetch(`${baseUrl}/v1/models/${encodeURIComponent(model)}`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${key.apiKey}`,
          'content-type': 'application/json',
          'idempotency-key': idempotencyKey,
        },
        body: JSON.stringify({ input, webhook_url: webhookUrl }),
        redirect: 'manual',
        signal: AbortSignal.any([deadline, signal]),
      })
      const body = await readBounded(response)
      return { outcome: classify(response, body, clock()), rate: rateOf(response) }
    } catch (error) {
      const detail = deadline.aborted ? `no complete answer within ${deadlineMs / 1000} s` : describeFailure(error)
      return { outcome: { kind: 'unreachable', detail }, rate: undefined }
    }
  }
}

/** Stands in for a refusal that Postgres cannot store. Without it the submit would be repeated forever. */
const unstorable: ErrorEnvelope = {
  error: {
    type: 'invalid_request_error',
    code: 'unreadable_answer',
    message: 'the provider refused this submit with a text that cannot be stored',
  },
}

function classify(response: Response, body: string | undefined, now: Date): SubmitOutcome {
  const json = parseJson(body)
  if (response.status === 200) {
    const submitted = submittedSchema.safeParse(json)
    // Repeating the key returns the same answer, so an unreadable answer is worth another try.
    return submitted.success
      ? { kind: 'submitted', submitted: submitted.data }
      : { kind: 'unreachable', detail: 'the answer does not match the schema' }
  }
  if (response.status === 429) return { kind: 'rate_limited', retryAfterSeconds: retryAfterOf(response, now) }
  const envelope = errorEnvelopeSchema.safeParse(json)
  if (response.status === 409 && envelope.data?.error.code === 'request_in_progress') return { kind: 'in_progress' }
  if (response.status >= 400 && response.status < 500 && envelope.success)
    return {
      kind: response.status === 401 || response.status === 403 ? 'unauthorized' : 'refused',
      status: response.status,
      envelope: isStorable(envelope.data) ? envelope.data : unstorable,
    }
  return { kind: 'unreachable', detail: `answered ${response.status}` }
}

function parseJson(body: string | undefined): unknown {
  try {
    return JSON.parse(body ?? '')
  } catch {
    return undefined
  }
}
