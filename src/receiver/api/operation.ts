import type { Request, RequestHandler, Response } from 'express'
import { z } from 'zod'
import type { ZodOpenApiOperationObject, ZodOpenApiResponsesObject } from 'zod-openapi'
import { errorBody, HttpError } from '../../runtime/http/http.ts'
import type { Logger } from '../../runtime/logger.ts'
import { databaseCodeOf, isNoAnswer } from '../../runtime/postgres/errors.ts'
import { explainPostgres } from '../../runtime/postgres/words.ts'
import { errorEnvelopeSchema } from '../../wire/schemas.ts'
import { QueryTimeoutError } from '../queries/deadline.ts'
import { ExpiredPositionError } from '../queries/feed.ts'
import { InvalidFilterError } from '../queries/filters.ts'

/** One call of the API: the same entry makes the route and its place in the OpenAPI document. */
export type Operation = {
  method: 'get' | 'post'
  /** As OpenAPI writes it, below `/api`. */
  path: string
  document: ZodOpenApiOperationObject
  answer: (req: Request, res: Response) => Promise<unknown>
}

/** Runs the call and turns what its queries throw into the envelope. */
export function handlerOf({ answer }: Operation, logger: Logger): RequestHandler {
  return async (req, res) => {
    res.set('cache-control', 'no-store')
    try {
      await answer(req, res)
    } catch (error) {
      throw asHttpError(error, logger)
    }
  }
}

/** What postgres.js, the network and a server that starts or stops say when there is no connection to be had. */
const noConnection = /^(CONNECT|ECONN|EPIPE|ENOENT|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EHOSTUNREACH|57P0|53)/

/** What the queries throw, as the answer that it is; anything else as it is. */
export function asHttpError(error: unknown, logger: Logger): unknown {
  if (error instanceof InvalidFilterError) return new HttpError(400, error.code, error.message)
  if (error instanceof ExpiredPositionError) return new HttpError(410, error.code, error.message)
  if (error instanceof QueryTimeoutError) return new HttpError(503, error.code, error.message)
  if (!noConnection.test(databaseCodeOf(error) ?? '') && !isNoAnswer(error)) return refusedByPostgres(error, logger)
  logger.error({ err: error }, 'the internal listener cannot reach Postgres')
  return new HttpError(503, 'unavailable', 'Postgres cannot be reached', { headers: { 'retry-after': '1' } })
}

/** A fault that only a person can mend, in Postgres's own words: whoever is here is one of ours. */
function refusedByPostgres(error: unknown, logger: Logger): unknown {
  const failure = explainPostgres(error)
  if (failure === undefined) return error
  // check_violation: a limit of what callers may write (domain/limits.ts).
  if (databaseCodeOf(error) === '23514')
    return new HttpError(422, 'not_storable', `${failure.words}: shorten the names, or send less metadata, nested less deep`)
  logger.error({ err: error }, 'Postgres refused what the internal listener asked')
  return new HttpError(failure.passing ? 503 : 500, failure.passing ? 'unavailable' : 'internal_error', failure.words)
}

/** A uuid of the path, in lower case; what is none names nothing. */
export function uuidParam(req: Request, name: string): string {
  const value = req.params[name]
  const parsed = z.guid().safeParse(value)
  if (!parsed.success) throw unknown(req)
  return parsed.data.toLowerCase()
}

export function unknown(req: Request): HttpError {
  return new HttpError(404, 'not_found', `there is nothing at ${req.baseUrl}${req.path}`)
}

/** Aborts when the client goes away, or has its answer. */
export function gone(res: Response): AbortSignal {
  const controller = new AbortController()
  res.once('close', () => controller.abort())
  return controller.signal
}

export function abortOf(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve()
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))
}

const maxWaitSeconds = 60

/** `?wait=`, in whole seconds. */
export const waitSchemaFor = (description: string) =>
  z.strictObject({
    wait: z
      .string()
      .regex(/^\d{1,2}$/, `must be whole seconds from 0 to ${maxWaitSeconds}`)
      .transform(Number)
      .pipe(z.int().max(maxWaitSeconds, `must be at most ${maxWaitSeconds}`))
      .optional()
      .meta({ description, override: { type: 'integer', minimum: 0, maximum: maxWaitSeconds } }),
  })

const errors = {
  400: 'invalid_filter, which names the parameter, invalid_body or invalid_idempotency_key',
  401: 'unauthorized: a token is set and was not sent',
  404: 'not_found',
  409: 'idempotency_key_reuse, landing_refused, name_taken, too_many_subscriptions',
  410: 'position_expired: changes after that position are no longer kept; read the results anew and go on without `after`',
  413: 'payload_too_large: the body has more than 1 MiB',
  415: 'unsupported_media_type: the body is not application/json in UTF-8',
  422: 'not_storable or unknown_key',
  503: 'query_timeout: narrow the query; too_many_waiting, request_locked or unavailable: try again after Retry-After seconds',
} as const

/** One of each, as it is answered. */
const errorExamples: Record<keyof typeof errors, [code: string, message: string]> = {
  400: ['invalid_filter', 'state: must be one of pending, processed, parked'],
  401: ['unauthorized', 'send Authorization: Bearer with the token of this listener'],
  404: ['not_found', 'there is nothing at /api/requests/3f0f0f5a-0000-4000-8000-000000000000'],
  409: ['idempotency_key_reuse', 'this idempotency_key was used for another generation'],
  410: ['position_expired', 'changes after position 1769826000000000 are no longer kept: the feed goes back to 1772418000000000'],
  413: ['payload_too_large', 'the body must have at most 1048576 bytes'],
  415: ['unsupported_media_type', 'the body must be application/json in UTF-8, plain or compressed with gzip, deflate or br'],
  422: ['unknown_key', 'there is no usable key of that key_name'],
  503: ['unavailable', 'Postgres cannot be reached'],
}

const successes = [200, 201, 202] as const
type Content = { description: string; schema: z.ZodType }

/** The responses of an operation: what it answers, and the errors it can end with besides 401 and 503. */
export function responses(
  answers: Partial<Record<(typeof successes)[number], Content>>,
  ...also: (keyof typeof errors)[]
): ZodOpenApiResponsesObject {
  const all: ZodOpenApiResponsesObject = {}
  for (const status of successes) {
    const answer = answers[status]
    if (answer) all[`${status}`] = { description: answer.description, content: { 'application/json': { schema: answer.schema } } }
  }
  for (const status of [401, 503, ...also] as const) {
    const example = errorBody(new HttpError(status, ...errorExamples[status]))
    all[`${status}`] = { description: errors[status], content: { 'application/json': { schema: errorEnvelopeSchema, example } } }
  }
  return all
}

export function jsonBody(schema: z.ZodType, { required = true } = {}) {
  return { required, content: { 'application/json': { schema } } }
}

export const idPathSchema = z.object({ id: z.guid() })
