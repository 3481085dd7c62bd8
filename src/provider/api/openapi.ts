import type { z } from 'zod'
import { createDocument, type ZodOpenApiOperationObject, type ZodOpenApiResponsesObject } from 'zod-openapi'
import { errorBody, HttpError } from '../../runtime/http/http.ts'
import { version } from '../../runtime/release.ts'
import {
  accountSchema,
  errorEnvelopeSchema,
  modelSchema,
  notificationSchema,
  resultSchema,
  statusBodySchema,
  submitBodySchema,
  submittedSchema,
} from '../../wire/schemas.ts'
import * as examples from './openapi-examples.ts'
import * as schemas from './openapi-schemas.ts'

/** Every code of the spec's Errors, with CONTRACT's where the spec is silent. */
const errors = {
  400: 'invalid_body, invalid_query, webhook_url_invalid or idempotency_key_invalid',
  401: 'invalid_api_key: the key is missing, wrong or revoked',
  402: 'insufficient_credits: the balance is too low',
  403: 'insufficient_scope: the key lacks the scope generate',
  404: 'not_found, or model_not_found at submit',
  409: 'idempotency_key_reuse, request_in_progress or not_cancelable',
  413: 'payload_too_large: the body has more than 1 MiB',
  415: 'unsupported_encoding: the body is compressed or encoded in a way that is not supported',
  422: 'model_input_invalid: the input does not fit the input_schema of the model, or a link in it may never be fetched',
  429: 'rate_limit_exceeded: wait for Retry-After seconds',
  503: 'unavailable: try again after Retry-After seconds',
} as const

type Status = keyof typeof errors

/** One of each, as it is answered. */
const errorExamples: Record<Status, HttpError> = {
  400: new HttpError(400, 'webhook_url_invalid', 'webhook_url must be an https URL'),
  401: new HttpError(401, 'invalid_api_key', 'the API key is missing, wrong or revoked'),
  402: new HttpError(402, 'insufficient_credits', 'the balance is too low for 8 credits', { type: 'billing_error' }),
  403: new HttpError(403, 'insufficient_scope', 'this API key does not have the scope generate'),
  404: new HttpError(404, 'model_not_found', 'the model aurora is not active in this environment'),
  409: new HttpError(409, 'idempotency_key_reuse', 'this Idempotency-Key was used with other parameters'),
  413: new HttpError(413, 'payload_too_large', 'the body must have at most 1048576 bytes'),
  415: new HttpError(415, 'unsupported_encoding', 'the body must be UTF-8, plain or compressed with gzip, deflate or br'),
  422: new HttpError(422, 'model_input_invalid', 'input.prompt is required'),
  429: new HttpError(429, 'rate_limit_exceeded', 'more than 120 requests in a minute, try again in 12 s'),
  503: new HttpError(503, 'unavailable', 'the service cannot be reached at this moment'),
}

type Success = { status?: 200 | 202; description: string; schema: z.ZodType; example: object }

function responses(successes: readonly Success[], ...also: Status[]): ZodOpenApiResponsesObject {
  const all: ZodOpenApiResponsesObject = {}
  for (const { status = 200, description, schema, example } of successes) {
    all[`${status}`] = { description, headers: schemas.rateHeadersSchema, content: { 'application/json': { schema, example } } }
  }
  for (const status of [401, 429, 503, ...also] as const) {
    all[`${status}`] = {
      description: errors[status],
      ...(status !== 401 && status !== 503 && { headers: schemas.rateHeadersSchema }),
      content: { 'application/json': { schema: errorEnvelopeSchema, example: errorBody(errorExamples[status]) } },
    }
  }
  return all
}

const body = (schema: z.ZodType, example: object) => ({ required: true, content: { 'application/json': { schema, example } } })

const submit: ZodOpenApiOperationObject = {
  operationId: 'submit',
  tags: ['Generations'],
  summary: 'Submit a generation',
  description:
    'Needs the scope generate. Never blocks until the media is ready: poll status_url, or pass webhook_url. ' +
    'Links in image_url, image_urls, video_urls and audio_urls must be public https URLs, or links to outputs of this API. ' +
    'They are fetched after the submit, within 10 s each; one that cannot be had ends the request as FAILED, without a charge. ' +
    'A sandbox key checks the links and fetches nothing.',
  requestParams: { path: schemas.modelPathSchema, header: schemas.idempotencyHeaderSchema },
  requestBody: body(submitBodySchema, examples.submitBody),
  responses: responses(
    [{ description: 'Accepted; with a sandbox key already COMPLETED', schema: submittedSchema, example: examples.submitted }],
    400,
    402,
    403,
    404,
    409,
    413,
    415,
    422,
  ),
}

const estimate: ZodOpenApiOperationObject = {
  operationId: 'estimate',
  tags: ['Models'],
  summary: 'What a generation would cost',
  requestParams: { path: schemas.modelPathSchema },
  requestBody: body(schemas.estimateBodySchema, examples.estimateBody),
  responses: responses(
    [{ description: 'The price; nothing is queued or charged', schema: schemas.estimateSchema, example: examples.estimate }],
    400,
    404,
    413,
    415,
    422,
  ),
}

const catalog: ZodOpenApiOperationObject = {
  operationId: 'listModels',
  tags: ['Models'],
  summary: 'The catalog of this environment',
  requestParams: { query: schemas.catalogQuerySchema },
  responses: responses([{ description: 'Models that this key can use', schema: schemas.catalogSchema, example: examples.listed }], 400),
}

const model: ZodOpenApiOperationObject = {
  operationId: 'showModel',
  tags: ['Models'],
  summary: 'One model with its input schema',
  requestParams: { path: schemas.modelPathSchema },
  responses: responses([{ description: 'The model', schema: modelSchema, example: examples.described }], 404),
}

const lookup = { path: schemas.requestPathSchema, query: schemas.logsQuerySchema }

const status: ZodOpenApiOperationObject = {
  operationId: 'showStatus',
  tags: ['Generations'],
  summary: 'State, queue position and progress',
  requestParams: lookup,
  responses: responses([{ description: 'The status', schema: statusBodySchema, example: examples.status }], 404),
}

const result: ZodOpenApiOperationObject = {
  operationId: 'showResult',
  tags: ['Generations'],
  summary: 'The result, once there is one',
  requestParams: lookup,
  responses: responses(
    [
      { description: 'Terminal: COMPLETED, FAILED or CANCELED', schema: resultSchema, example: examples.result },
      { status: 202, description: 'Not terminal yet: poll again', schema: statusBodySchema, example: examples.status },
    ],
    404,
  ),
}

const cancel: ZodOpenApiOperationObject = {
  operationId: 'cancel',
  tags: ['Generations'],
  summary: 'Cancel a generation that is IN_QUEUE',
  description: 'Needs the scope generate. Off unless the provider was started with PROVIDER_CANCEL_ENDPOINT=on; until then always 404.',
  requestParams: { path: schemas.requestPathSchema },
  responses: responses([{ description: 'Canceled and refunded', schema: statusBodySchema, example: examples.canceled }], 403, 404, 409),
}

const account: ZodOpenApiOperationObject = {
  operationId: 'showAccount',
  tags: ['Account'],
  summary: 'Balance and usage of the last 30 days',
  responses: responses([{ description: 'The account', schema: accountSchema, example: examples.account }]),
}

/** OpenAPI 3.1 of the API, made from the very schemas that validate what comes in and type what goes out. */
export function openApiDocument(baseUrl: string) {
  return createDocument(
    {
      openapi: '3.1.0',
      info: {
        title: 'Asynchronous Generation Queue API',
        version,
        description: 'Submit a generation of images, video or audio; poll its status or get a signed webhook at its end.',
      },
      tags: [
        { name: 'Generations', description: 'From the submit to the result.' },
        { name: 'Models', description: 'What can be generated, from which input, at what price.' },
        { name: 'Account', description: 'What is left of the credits.' },
        { name: 'Webhook', description: 'What comes to the webhook_url of a submit.' },
      ],
      servers: [{ url: baseUrl }],
      security: [{ bearer: [] }, { key: [] }, { header: [] }],
      paths: {
        '/v1/models': { get: catalog },
        '/v1/models/{model}': { get: model, post: submit },
        '/v1/models/{model}/estimate': { post: estimate },
        '/v1/requests/{request_id}/status': { get: status },
        '/v1/requests/{request_id}': { get: result },
        '/v1/requests/{request_id}/cancel': { post: cancel },
        '/v1/account': { get: account },
      },
      webhooks: {
        completion: {
          post: {
            tags: ['Webhook'],
            summary: 'Completion notification, sent to webhook_url',
            description: 'Answer with 2xx within 10 seconds; otherwise it comes again, six times in all.',
            requestParams: { header: schemas.webhookHeadersSchema },
            requestBody: body(notificationSchema, examples.notification),
            responses: { '2XX': { description: 'Received' } },
          },
        },
      },
      components: {
        securitySchemes: {
          bearer: { type: 'http', scheme: 'bearer', description: 'Authorization: Bearer <API_KEY>' },
          key: { type: 'apiKey', in: 'header', name: 'Authorization', description: 'Authorization: Key <API_KEY>' },
          header: { type: 'apiKey', in: 'header', name: 'X-Api-Key' },
        },
      },
    },
    { override: describeUuid },
  )
}

/** A transform has no JSON schema; ours only put a uuid into lower case. */
function describeUuid({ zodSchema, jsonSchema }: { zodSchema: z.core.$ZodTypes; jsonSchema: z.core.JSONSchema.BaseSchema }): void {
  if (zodSchema._zod.def.type !== 'pipe') return
  for (const name of Object.keys(jsonSchema)) delete jsonSchema[name]
  jsonSchema.type = 'string'
  jsonSchema.format = 'uuid'
}
