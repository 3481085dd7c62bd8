import { HttpError } from '../../platform/http/http.ts'
import { keyOfRequest, sourceOf } from '../domain/keys.ts'
import type { SourceKind } from '../domain/source.ts'
import { callSource, noCallLeft, type CallingDeps } from '../fetching/source-call.ts'

/** A request as readers see it. */
export type Cancelable = {
  id: string
  source_name: string
  external_id: string
  model: string | null
  key_name: string | null
  landed_at: string | null
}

export type CancelDeps = CallingDeps & { cut: AbortSignal }

/** Returns how the source of an open request cancels a job; undefined if it has no such call, or is not configured. */
export function cancelOf(
  { keys }: Pick<CancelDeps, 'keys'>,
  { source_name, landed_at }: Cancelable,
): SourceKind['cancel'] {
  return landed_at === null ? sourceOf(keys(), source_name)?.kind.cancel : undefined
}

/**
 * Asks the source of a request to cancel its job, within the budget of the key's submits. It changes no state: the job
 * may complete nevertheless, and its end comes by a webhook or a poll. Throws HttpError 409 not_cancelable, 422
 * unknown_key, 429 if the key has no call left, and 502 if the source gives no usable answer.
 */
export async function cancelJob(deps: CancelDeps, request: Cancelable): Promise<'asked' | 'ended'> {
  const { keys, cut } = deps
  const { id, source_name, external_id: jobId, model, key_name, landed_at } = request
  const source = sourceOf(keys(), source_name)
  const cancel = cancelOf(deps, request)
  if (source === undefined || cancel === undefined)
    throw notCancelable(landed_at === null ? `the source ${source_name} cannot cancel jobs` : 'this request has ended')
  const key = keyOfRequest(keys(), source, key_name)
  if (key === undefined) throw new HttpError(422, 'unknown_key', `the source ${source_name} has no usable key`)
  const outcome = await callSource(deps, {
    operation: 'cancel',
    key,
    purpose: 'submitting',
    call: (api) => cancel({ jobId, model: model ?? undefined }, api),
    signal: cut,
    factsOf: () => ({ request_id: id }),
  })
  switch (outcome.kind) {
    case 'asked':
    case 'ended':
      return outcome.kind
    case 'no_call':
      throw noCallLeft(key, outcome)
    case 'not_found':
      throw notCancelable('the source does not know this job')
    case 'rate_limited': {
      const headers = { 'retry-after': String(outcome.retryAfterSeconds ?? 1) }
      throw new HttpError(429, 'no_call_left', 'the source limits the calls of this key', { headers })
    }
    case 'unauthorized':
      throw unusable(`it refused the key ${key.name}`)
    case 'unreachable':
      throw unusable(outcome.detail)
    case 'invalid':
      throw outcome.isUnsent === true ? notCancelable(outcome.detail) : unusable(outcome.detail)
    default:
      return outcome satisfies never
  }
}

function notCancelable(message: string): HttpError {
  return new HttpError(409, 'not_cancelable', message)
}

function unusable(detail: string): HttpError {
  return new HttpError(502, 'provider_unreachable', `the source gave no usable answer (${detail}): try again`)
}
