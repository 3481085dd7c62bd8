import type { Request, Response } from 'express'
import { z } from 'zod'
import { exampleValues } from '../../platform/pages/openapi.ts'
import { accountSchema, catalogEntrySchema, modelSchema } from '../../wire/schemas.ts'
import type { ReadAnswer } from '../fetching/provider-reads.ts'
import type { ReceiverDeps } from '../program.ts'
import { parseFilters } from '../queries/filters.ts'
import { readBody } from './body.ts'
import { jsonBody, readsBody, responses, unknown, type Operation } from './operation.ts'

const querySchema = z.strictObject({
  key_name: z
    .string()
    .min(1)
    .optional()
    .meta({ description: 'The key to call the provider with; the first usable key by default.' }),
})
const pathSchema = z.object({ model: z.string().min(1).max(255) })
const inputSchema = z.strictObject({ input: z.record(z.string(), z.unknown()) })
const catalogSchema = z.object({ data: z.array(catalogEntrySchema) })
const estimateSchema = z.object({ credits: z.number() })
const ownErrors = ['invalid_filter', 'unknown_key', 'no_call_left', 'provider_unreachable'] as const

/** Reads of the provider, for services without an API key (spec, Endpoints: catalog, model, estimate, account). */
export function providerOperations({ providerReads }: ReceiverDeps): Operation[] {
  const read = (
    operationId: string,
    path: string,
    summary: string,
    schema: z.ZodType,
    input?: typeof inputSchema,
  ): Operation => ({
    method: input === undefined ? 'get' : 'post',
    path,
    document: {
      operationId,
      summary,
      description: "The provider's answer, cached for a minute. Its own 4xx is passed on.",
      requestParams: { query: querySchema, ...(path.includes('{model}') && { path: pathSchema }) },
      ...(input && { requestBody: jsonBody(input, { input: exampleValues.input }) }),
      responses: {
        ...responses(
          { 200: { description: "The provider's answer", schema } },
          ...(input ? readsBody : []),
          ...ownErrors,
        ),
        '4XX': { description: "The provider's own refusal" },
      },
    },
    answer: async (req, res) => {
      const { key_name: keyName } = parseFilters(querySchema, req.query)
      const body = input && (await readBody(req, res, input))
      const model = path.includes('{model}') ? slugOf(req) : ''
      send(res, await providerReads({ path: `/v1${path.replace('{model}', model)}`, ...(body && { body }) }, keyName))
    },
  })
  return [
    read('listModels', '/models', 'The models that the key may use', catalogSchema),
    read('showModel', '/models/{model}', 'One model with its input schema and price', modelSchema),
    read(
      'estimateGeneration',
      '/models/{model}/estimate',
      'The price of a generation, in credits',
      estimateSchema,
      inputSchema,
    ),
    read('showAccount', '/account', "The balance and the usage of the key's account", accountSchema),
  ]
}

/** Returns the slug as a path segment. `.` and `..` are refused: they would call another path. */
function slugOf(req: Request): string {
  const model = String(req.params['model'])
  if (/^\.{1,2}$/.test(model)) throw unknown(req)
  return encodeURIComponent(model)
}

function send(res: Response, { status, body, retryAfterSeconds }: ReadAnswer): void {
  if (retryAfterSeconds !== undefined) res.set('retry-after', String(retryAfterSeconds))
  res.status(status).json(body)
}
