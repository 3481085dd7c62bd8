import { z } from 'zod'
import { createDocument, type ZodOpenApiOperationObject } from 'zod-openapi'
import { describeTransform, exampleValues, withExamples } from '../../platform/pages/openapi.ts'
import { version } from '../../platform/release.ts'
import {
  accountSchema,
  modelSchema,
  notificationSchema,
  resultSchema,
  statusBodySchema,
  submitBodySchema,
  submittedSchema,
} from '../../wire/schemas.ts'
import { readsBody, refusals } from './openapi-errors.ts'
import * as schemas from './openapi-schemas.ts'

const { input, request_id, model: slug, cost, original_url: url } = exampleValues
const notification = { request_id, status: 'OK', payload: { model: slug, output: { images: [{ url }] }, cost } }

function body(schema: z.ZodType, example: object) {
  return { required: true, content: { 'application/json': { schema, example } } }
}

function ok(description: string, schema: z.ZodType) {
  const headers = schemas.rateHeadersSchema.extend(schemas.contentLanguageSchema.partial().shape)
  return { description, headers, content: { 'application/json': { schema } } }
}

/** Adds Accept-Language to the parameters of a call. Every call accepts it. */
function localizable(operation: ZodOpenApiOperationObject): ZodOpenApiOperationObject {
  return { ...operation, requestParams: { header: schemas.languageHeaderSchema, ...operation.requestParams } }
}

const submit: ZodOpenApiOperationObject = {
  operationId: 'submit',
  tags: ['Generations'],
  summary: 'Submit a generation',
  description:
    'Needs the scope generate. Answers without waiting for the media: poll status_url, or pass webhook_url. ' +
    'Links in image_url, image_urls, video_urls and audio_urls must be public https URLs, ' +
    'or links to outputs of this API. They are fetched after the submit, within 10 s each. ' +
    'If one cannot be fetched, the request ends as FAILED without a charge. ' +
    'With a sandbox key, the links are checked but not fetched.',
  requestParams: { path: schemas.modelPathSchema, header: schemas.submitHeaderSchema },
  requestBody: body(submitBodySchema, { input, webhook_url: 'https://hooks.example.com/webhooks' }),
  responses: {
    200: ok('Accepted. With a sandbox key the request is already COMPLETED', submittedSchema),
    ...refusals([
      ...readsBody,
      'webhook_url_invalid',
      'idempotency_key_invalid',
      'insufficient_credits',
      'insufficient_scope',
      'model_not_found',
      'idempotency_key_reuse',
      'request_in_progress',
    ]),
  },
}

const estimate: ZodOpenApiOperationObject = {
  operationId: 'estimate',
  tags: ['Models'],
  summary: 'The price of a generation',
  requestParams: { path: schemas.modelPathSchema },
  requestBody: body(schemas.estimateBodySchema, { input }),
  responses: {
    200: ok('The price. Nothing is queued or charged', schemas.estimateSchema),
    ...refusals([...readsBody, 'not_found']),
  },
}

const catalog: ZodOpenApiOperationObject = {
  operationId: 'listModels',
  tags: ['Models'],
  summary: 'The catalog of this environment',
  requestParams: { query: schemas.catalogQuerySchema },
  responses: {
    200: ok('Models that this key can use', schemas.catalogSchema),
    ...refusals(['invalid_query']),
  },
}

const model: ZodOpenApiOperationObject = {
  operationId: 'showModel',
  tags: ['Models'],
  summary: 'One model with its input schema',
  requestParams: { path: schemas.modelPathSchema },
  responses: { 200: ok('The model', modelSchema), ...refusals(['not_found']) },
}

const lookup = { path: schemas.requestPathSchema, query: schemas.logsQuerySchema }

const status: ZodOpenApiOperationObject = {
  operationId: 'showStatus',
  tags: ['Generations'],
  summary: 'State, queue position and progress',
  requestParams: lookup,
  responses: { 200: ok('The status', statusBodySchema), ...refusals(['not_found']) },
}

/** Without terminal statuses, so that a generated client can tell a 200 from a 202 by the status. */
const runningSchema = statusBodySchema.extend({ status: z.enum(['IN_QUEUE', 'IN_PROGRESS']) })

const result: ZodOpenApiOperationObject = {
  operationId: 'showResult',
  tags: ['Generations'],
  summary: 'The result of a terminal request',
  requestParams: lookup,
  responses: {
    200: ok('Terminal: COMPLETED, FAILED or CANCELED', resultSchema),
    202: ok('Not terminal yet: poll again', runningSchema),
    ...refusals(['not_found']),
  },
}

const cancel: ZodOpenApiOperationObject = {
  operationId: 'cancel',
  tags: ['Generations'],
  summary: 'Cancel a generation that is IN_QUEUE',
  description: 'Needs the scope generate. Answers 404 unless the provider runs with PROVIDER_CANCEL_ENDPOINT=on.',
  requestParams: { path: schemas.requestPathSchema },
  responses: {
    200: ok('Canceled and refunded', statusBodySchema),
    ...refusals(['insufficient_scope', 'not_found', 'not_cancelable']),
  },
}

const account: ZodOpenApiOperationObject = {
  operationId: 'showAccount',
  tags: ['Account'],
  summary: 'Balance and usage of the last 30 days',
  responses: { 200: ok('The account', accountSchema), ...refusals([]) },
}

/** The OpenAPI 3.1 document, generated from the schemas that validate input and type output. */
export function openApiDocument(baseUrl: string): object {
  const document = createDocument(
    {
      openapi: '3.1.0',
      info: {
        title: 'Asynchronous Generation Queue API',
        version,
        description:
          'Submit a generation of images, video or audio. Poll its status, or receive a signed webhook when it ends. ' +
          'Every error has the same envelope, also 400 bad_request, 405 method_not_allowed and 417 expectation_failed.',
      },
      tags: [
        { name: 'Generations', description: 'From the submit to the result.' },
        { name: 'Models', description: 'The models with their inputs and prices.' },
        { name: 'Account', description: 'The balance of credits.' },
        { name: 'Webhook', description: 'The notification sent to the webhook_url of a submit.' },
      ],
      servers: [{ url: baseUrl }],
      security: [{ bearer: [] }, { key: [] }, { header: [] }],
      paths: {
        '/v1/models': { get: localizable(catalog) },
        '/v1/models/{model}': { get: localizable(model), post: localizable(submit) },
        '/v1/models/{model}/estimate': { post: localizable(estimate) },
        '/v1/requests/{request_id}/status': { get: localizable(status) },
        '/v1/requests/{request_id}': { get: localizable(result) },
        '/v1/requests/{request_id}/cancel': { post: localizable(cancel) },
        '/v1/account': { get: localizable(account) },
      },
      webhooks: {
        completion: {
          post: {
            tags: ['Webhook'],
            summary: 'Completion notification, sent to webhook_url',
            description: 'Sent in at most six attempts, until one is answered 2xx within 10 seconds.',
            requestParams: { header: schemas.webhookHeadersSchema },
            requestBody: body(notificationSchema, notification),
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
    { override: describeTransform },
  )
  return withExamples(document)
}
