import type { ZodOpenApiResponsesObject } from 'zod-openapi'
import { anyCallErrors, type ErrorAnswer, errorResponses, jsonBodyErrors } from '../../platform/pages/error-answers.ts'
import * as schemas from './openapi-schemas.ts'

/** Every code of the spec's Errors, and codes of the decisions where the spec is silent. */
const errors = {
  ...anyCallErrors,
  ...jsonBodyErrors,
  invalid_body: { status: 400, when: 'the body has a wrong shape' },
  webhook_url_invalid: { status: 400, when: 'webhook_url cannot be called' },
  idempotency_key_invalid: { status: 400, when: 'the Idempotency-Key is malformed' },
  invalid_query: { status: 400, when: 'a parameter has an unknown value' },
  invalid_api_key: { status: 401, when: 'the key is missing, wrong or revoked' },
  insufficient_credits: { status: 402, when: 'the balance is too low', type: 'billing_error' },
  insufficient_scope: { status: 403, when: 'the key lacks the scope generate' },
  not_found: { status: 404, when: 'this key has no such model or request' },
  model_not_found: { status: 404, when: 'the model is unknown or not active in this environment' },
  idempotency_key_reuse: { status: 409, when: 'the Idempotency-Key was used with other parameters' },
  request_in_progress: { status: 409, when: 'the first request with this Idempotency-Key is still being processed' },
  not_cancelable: { status: 409, when: 'the request is not IN_QUEUE' },
  model_input_invalid: {
    status: 422,
    when: 'the input does not fit the input_schema of the model, or a link in it may never be fetched',
  },
  rate_limit_exceeded: { status: 429, when: 'too many calls in a minute: wait for Retry-After seconds' },
  unavailable: { status: 503, when: 'temporarily unavailable: try again after Retry-After seconds' },
} as const satisfies Record<string, ErrorAnswer>

export type Code = keyof typeof errors

const always = [
  'invalid_api_key',
  'request_timeout',
  'rate_limit_exceeded',
  'headers_too_large',
  'internal_error',
  'unavailable',
] as const satisfies Code[]
/** The errors of a call that reads a JSON body. */
export const readsBody = [
  'invalid_body',
  'payload_too_large',
  'unsupported_media_type',
  'model_input_invalid',
] as const satisfies Code[]
/** Answers to unreadable requests, which are always in English. */
const unread = new Set(['408', '431'])
/** Answers sent before the call was counted, or without its count. */
const uncounted = new Set(['401', '500', '503'])

/** The error answers of a call: those of every call, and those in `also`. */
export function refusals(also: readonly Code[]): ZodOpenApiResponsesObject {
  const answers = Object.entries(errorResponses(errors, [...always, ...also]))
  return Object.fromEntries(answers.map(([status, answer]) => [status, { ...answer, ...headersAt(status) }]))
}

function headersAt(status: string) {
  if (unread.has(status)) return {}
  const { shape } = schemas.contentLanguageSchema
  return { headers: uncounted.has(status) ? schemas.contentLanguageSchema : schemas.rateHeadersSchema.extend(shape) }
}
