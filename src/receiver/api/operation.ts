import type { Request, RequestHandler, Response } from 'express'
import { z } from 'zod'
import type { ZodOpenApiOperationObject, ZodOpenApiResponsesObject } from 'zod-openapi'
import { DeadlineError } from '../../platform/deadline.ts'
import { HttpError, errorBody } from '../../platform/http/http.ts'
import { invalidBody, readJsonBody } from '../../platform/http/json-body.ts'
import type { Logger } from '../../platform/logger.ts'
import { actorOf } from '../../platform/pages/access.ts'
import type { AuditDeps, AuditedAction, Detail } from '../../platform/pages/audit.ts'
import { plainWords } from '../../platform/plain-words.ts'
import { databaseCodeOf, isNoAnswer } from '../../platform/postgres/errors.ts'
import { explainPostgres } from '../../platform/postgres/words.ts'
import { errorEnvelopeSchema } from '../../wire/schemas.ts'
import { QueryTimeoutError } from '../queries/deadline.ts'
import { ExpiredPositionError } from '../queries/feed.ts'
import { digits, InvalidFilterError, parseFilters } from '../queries/filters.ts'
import { pageSchema } from '../queries/page.ts'
import { audited } from '../upkeep/audit.ts'

type InDocument = 'operationId' | 'summary' | 'description' | 'tags' | 'requestParams' | 'requestBody'

/** One call of the API. The route and the entry in the OpenAPI document are made from it. */
export type Operation = Pick<ZodOpenApiOperationObject, InDocument> & {
  method: 'get' | 'post'
  /** The path below `/api`, in OpenAPI's notation. */
  path: string
  /** Its successes, by status. */
  answers: Partial<Record<200 | 201 | 202, Content>>
  /** Its own errors, besides those of every call and of every call with a body. */
  errors?: readonly Code[]
  passesOn4xx?: boolean
  answer: (req: Request, res: Response) => Promise<unknown>
}

/** A success, by default with JSON. `streams`: a call can also ask for server-sent events. */
export type Content = { description: string; schema: z.ZodType; type?: string; streams?: true }

/** Runs the call and turns errors of its queries into error answers. */
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

/** Error codes of postgres.js, the network, and a server that starts or stops. */
const noConnection = /^(CONNECT|ECONN|EPIPE|ENOENT|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EHOSTUNREACH|57P0)/

const retrySoon = { headers: { 'retry-after': '1' } }

/** Returns the HTTP error for an error of a query; returns any other error unchanged. */
export function asHttpError(error: unknown, logger: Logger): unknown {
  if (error instanceof InvalidFilterError) return new HttpError(400, error.code, error.message)
  if (error instanceof ExpiredPositionError) return new HttpError(410, error.code, error.message)
  if (error instanceof QueryTimeoutError) return new HttpError(503, error.code, error.message)
  const isLate = error instanceof DeadlineError
  if (!isLate && !noConnection.test(databaseCodeOf(error) ?? '') && !isNoAnswer(error))
    return refusedByPostgres(error, logger)
  logger.error({ err: error }, 'the internal listener cannot reach Postgres')
  const message = isLate ? 'Postgres gave no answer in time' : 'Postgres cannot be reached'
  return new HttpError(503, 'unavailable', message, retrySoon)
}

/** Turns a refusal by Postgres into an answer with Postgres's own words. Callers of this listener are trusted. */
function refusedByPostgres(error: unknown, logger: Logger): unknown {
  const failure = explainPostgres(error)
  if (failure === undefined) return error
  // check_violation: a limit of what callers may write (domain/limits.ts).
  if (databaseCodeOf(error) === '23514')
    return new HttpError(422, 'not_storable', `${failure.words}: shorten the names, or send less metadata`)
  logger.error({ err: error }, 'Postgres refused a statement of the internal listener')
  if (!failure.passing) return new HttpError(500, 'internal_error', failure.words)
  return new HttpError(503, 'unavailable', failure.words, retrySoon)
}

/** Returns the uuid of the path in lower case. A malformed one is answered 404. */
export function uuidParam(req: Request, name: string): string {
  const value = req.params[name]
  const parsed = z.guid().safeParse(value)
  if (!parsed.success) throw unknown(req)
  return parsed.data.toLowerCase()
}

export function unknown(req: Request): HttpError {
  return new HttpError(404, 'not_found', `nothing was found at ${req.baseUrl}${req.path}`)
}

/** A 503 for a locked request. Postgres does not name the lock's holder, so the caller is asked to try again. */
export function locked(): HttpError {
  const message = 'another transaction holds this request: try again after it has ended'
  return new HttpError(503, 'request_locked', message, { headers: { 'retry-after': '2' } })
}

/** Aborts when the client disconnects or the answer has ended. */
export function gone(res: Response): AbortSignal {
  const controller = new AbortController()
  res.once('close', () => controller.abort())
  return controller.signal
}

/** The longest wait, since many proxies cut calls after 60 s. */
const maxWaitSeconds = 60

/** The query parameter `wait`, in whole seconds. */
export const waitSchemaFor = (description: string) =>
  z.strictObject({
    wait: digits(2, `must be whole seconds from 0 to ${maxWaitSeconds}`)
      .pipe(z.int().max(maxWaitSeconds))
      .optional()
      .meta({ description, override: { type: 'integer', minimum: 0, maximum: maxWaitSeconds } }),
  })

const errors = {
  invalid_filter: { status: 400, when: 'a parameter is unknown or malformed; the message names it' },
  invalid_body: { status: 400, when: 'the body does not match the schema' },
  invalid_idempotency_key: { status: 400, when: 'the Idempotency-Key is malformed, or not the one in the body' },
  unauthorized: { status: 401, when: 'a token is set and the call does not send it' },
  host_not_allowed: { status: 403, when: 'no token is set and Host is not loopback' },
  cross_origin: { status: 403, when: 'the call comes from a page of another origin' },
  not_found: { status: 404, when: 'no such item' },
  request_timeout: { status: 408, when: 'the request did not arrive within 30 seconds' },
  idempotency_key_reuse: { status: 409, when: 'the key was used for another generation' },
  landing_refused: { status: 409, when: 'Postgres refuses the rows that the delivery would write' },
  name_taken: { status: 409, when: 'another subscription has the name' },
  too_many_subscriptions: { status: 409, when: 'the limit of subscriptions is reached: remove one first' },
  not_cancelable: { status: 409, when: 'the request has ended, or its source cannot cancel it' },
  source_mismatch: { status: 409, when: 'the request belongs to another source than the key' },
  position_expired: {
    status: 410,
    when: 'changes after that position are no longer kept: read the results anew and continue without `after`',
  },
  payload_too_large: { status: 413, when: 'the body has more than 1 MiB' },
  unsupported_media_type: {
    status: 415,
    when: 'the body is not application/json in UTF-8, or is compressed other than with gzip, deflate or br',
  },
  not_storable: { status: 422, when: 'Postgres cannot store the body' },
  unknown_key: { status: 422, when: 'no usable key has that key_name, or no key of the default source is usable' },
  too_many_attempts: { status: 429, when: 'too many wrong tokens arrived in one minute: try again after Retry-After' },
  no_call_left: {
    status: 429,
    when: 'the key has no call to the provider left: try again after Retry-After seconds',
    type: 'rate_limit_error',
  },
  headers_too_large: { status: 431, when: 'the headers have more than 16 KiB' },
  internal_error: { status: 500, when: 'an internal error' },
  provider_unreachable: { status: 502, when: 'the provider gave no usable answer' },
  unavailable: { status: 503, when: 'temporarily unavailable: try again, after Retry-After seconds where given' },
  query_timeout: { status: 503, when: 'the query took too long: narrow it' },
  request_locked: { status: 503, when: 'another transaction holds the request: try again after Retry-After seconds' },
  too_many_waiting: { status: 503, when: 'too many such calls are open: try again after Retry-After seconds' },
} as const satisfies Record<string, ErrorAnswer>

type Code = keyof typeof errors

const always = [
  'unauthorized',
  'host_not_allowed',
  'cross_origin',
  'request_timeout',
  'too_many_attempts',
  'headers_too_large',
  'internal_error',
  'unavailable',
  'query_timeout',
] as const satisfies Code[]
/** The errors of a call that reads a JSON body. */
const ofBody = ['invalid_body', 'payload_too_large', 'unsupported_media_type'] as const satisfies Code[]

/** Describes a call in the OpenAPI document. */
export function documentOf(operation: Operation): ZodOpenApiOperationObject {
  const { method: _method, path: _path, answer: _answer, answers, errors: own = [], passesOn4xx, ...about } = operation
  const successes = Object.entries(answers).map(
    ([status, { description, schema, type = 'application/json', streams }]) => {
      const events = streams && { 'text/event-stream': { schema: z.string() } }
      return [status, { description, content: { [type]: { schema }, ...events } }]
    },
  )
  const codes = [...always, ...(about.requestBody ? ofBody : []), ...own]
  const errorAnswers = errorResponses(codes, passesOn4xx)
  return { ...about, responses: { ...Object.fromEntries(successes), ...errorAnswers } }
}

export function jsonBody(schema: z.ZodType, example: object, { required = true } = {}) {
  return { required, content: { 'application/json': { schema, example } } }
}

export const idPathSchema = z.object({ id: z.guid() })

type AuditedCall<T> = Pick<AuditedAction, 'action' | 'target'> & {
  detailOf: (result: T) => Detail | undefined
  work: () => Promise<T>
}

/** Does the work of a call of the API, or of the console, and records the caller in the audit log. */
export function auditedCall<T>(deps: AuditDeps, req: Request, { work, ...action }: AuditedCall<T>): Promise<T> {
  const via = req.baseUrl === '/api' ? 'api' : 'console'
  return audited(deps, { via, actor: actorOf(req), ...action }, work)
}

/**
 * Reads the JSON body and validates it: 400 invalid_body if it does not match, 413 over 1 MiB. A missing body is `{}`.
 */
export async function readBody<T extends z.ZodType>(req: Request, res: Response, schema: T): Promise<z.infer<T>> {
  const parsed = schema.safeParse(hasBody(req) ? await readJsonBody(req, res) : {}, plainWords)
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  if (issue?.code === 'unrecognized_keys')
    throw invalidBody(`${[...issue.path, ...issue.keys.slice(0, 1)].join('.')} is not a member of this body`)
  const member = issue?.path.join('.') ?? ''
  throw invalidBody(member === '' ? 'the body must be a JSON object' : `${member}: ${issue?.message ?? 'is not valid'}`)
}

function hasBody(req: Request): boolean {
  return req.headers['transfer-encoding'] !== undefined || Number(req.headers['content-length'] ?? 0) > 0
}

type ErrorAnswer = { status: number; when: string; type?: string }

/**
 * The error answers of one call in OpenAPI: each status with the codes that this call can give, and no others. Where
 * refusals of the provider are passed on, a 4xx has any type and code.
 */
function errorResponses(codes: readonly Code[], passesOn4xx = false): ZodOpenApiResponsesObject {
  const refusal = "the provider's own refusal"
  const passedOn = { description: refusal, content: { 'application/json': { schema: errorEnvelopeSchema } } }
  const byStatus = Map.groupBy(new Set(codes), (code) => errors[code].status)
  const own = [...byStatus]
    .toSorted(([a], [b]) => a - b)
    .map(([status, [first, ...others]]) => {
      if (first === undefined) throw new Error('a status has a code')
      const examples = [first, ...others].map(exampleOf)
      const type = z.literal([...new Set(examples.map(({ error }) => error.type))])
      const error = errorEnvelopeSchema.shape.error.extend({ type, code: z.enum([first, ...others]) })
      const isPassedOn = passesOn4xx && status < 500
      const schema = isPassedOn ? errorEnvelopeSchema : z.object({ error })
      const meanings = [first, ...others].map((code) => `${code}: ${errors[code].when}`)
      const description = [...meanings, ...(isPassedOn ? [refusal] : [])].join('; ')
      return [status, { description, content: { 'application/json': { schema, example: examples[0] } } }]
    })
  return { ...Object.fromEntries(own), ...(passesOn4xx && { '4XX': passedOn }) }
}

function exampleOf(code: Code) {
  const { status, when, type }: ErrorAnswer = errors[code]
  return errorBody(new HttpError(status, code, when, type === undefined ? {} : { type }))
}

type Reading = Omit<Operation, 'method' | 'path' | 'answers' | 'answer'> & { answer: Content }

/** Makes a GET that answers what `read` returns. Undefined is answered 404. */
export function shown(
  path: string,
  { answer, read, ...about }: Reading & { read: (req: Request) => Promise<object | undefined> },
): Operation {
  return {
    method: 'get',
    path,
    ...about,
    answers: { 200: answer },
    answer: async (req, res) => {
      const item = await read(req)
      if (item === undefined) throw unknown(req)
      res.json(item)
    },
  }
}

/** Makes a GET that answers a whole list. The list is always short, so it has no pages. */
export function whole<T>(
  path: string,
  { item, read, ...about }: Omit<Reading, 'answer'> & { item: z.ZodType<T>; read: () => Promise<readonly T[]> },
): Operation {
  const answer = { description: 'All of them', schema: z.object({ data: z.array(item) }) }
  return shown(path, { ...about, answer, read: async () => ({ data: await read() }) })
}

type Filtered<Filters extends z.ZodObject> = Reading & {
  filters: Filters
  read: (wanted: z.infer<Filters>) => Promise<object>
}

/** Makes a GET that answers what its filters select. */
export function filtered<Filters extends z.ZodObject>(
  path: string,
  { filters, read, ...about }: Filtered<Filters>,
): Operation {
  const more = { requestParams: { query: filters }, errors: ['invalid_filter'] as const }
  return shown(path, { ...about, ...more, read: (req) => read(parseFilters(filters, req.query)) })
}

export function onePage(item: z.ZodType): Content {
  return { description: 'One page', schema: pageSchema(item) }
}
