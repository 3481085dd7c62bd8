import type { Request, Response } from 'express'
import { z } from 'zod'
import { accountSchema, catalogEntrySchema, modelSchema } from '../../wire/schemas.ts'
import type { ReadAnswer } from '../accounts/source-reads.ts'
import type { ReceiverDeps } from '../program.ts'
import { costFiltersSchema, costsSchema, readCosts } from '../queries/costs.ts'
import { parseFilters } from '../queries/filters.ts'
import { exampleValues } from './examples.ts'
import { readBody, jsonBody, unknown, type Operation, filtered } from './operation.ts'

const querySchema = z.strictObject({
  key_name: z.string().min(1).optional().describe('The key to call with; by default the first usable one.'),
})
const pathSchema = z.object({ model: z.string().min(1).max(255) })
const inputSchema = z.strictObject({ input: z.record(z.string(), z.unknown()) })
const catalogSchema = z.object({ data: z.array(catalogEntrySchema) })
const estimatePath = '/models/{model}/estimate'
const estimateSchema = z.object({ credits: z.number() })

/**
 * Reads of the provider, for services without an API key (spec, Endpoints: catalog, model, estimate, account), and what
 * its generations cost.
 */
export function providerOperations({ db, sourceReads }: ReceiverDeps): Operation[] {
  const read = (path: string, schema: z.ZodType, about: { operationId: string; summary: string }): Operation => ({
    method: 'get',
    path,
    ...about,
    description: "The provider's answer, cached for a minute. Its own 4xx is passed on.",
    requestParams: { query: querySchema, ...(path.includes('{model}') && { path: pathSchema }) },
    answers: { 200: { description: "The provider's answer", schema } },
    errors: ['invalid_filter', 'unknown_key', 'no_call_left', 'provider_unreachable'],
    passesOn4xx: true,
    answer: async (req, res) => {
      const { key_name: keyName } = parseFilters(querySchema, req.query)
      const model = path.includes('{model}') ? slugOf(req) : ''
      const body = path === estimatePath ? { body: await readBody(req, res, inputSchema) } : {}
      send(res, await sourceReads({ path: `/v1${path.replace('{model}', model)}`, ...body }, keyName))
    },
  })
  const show = { operationId: 'showModel', summary: 'One model with its input schema and price' }
  const estimate = { operationId: 'estimateGeneration', summary: 'The price of a generation, in credits' }
  const account = { operationId: 'showAccount', summary: "The balance and the usage of the key's account" }
  return [
    read('/models', catalogSchema, { operationId: 'listModels', summary: 'The models that the key may use' }),
    read('/models/{model}', modelSchema, show),
    {
      ...read(estimatePath, estimateSchema, estimate),
      method: 'post',
      requestBody: jsonBody(inputSchema, { input: exampleValues.input }),
    },
    read('/account', accountSchema, account),
    filtered('/costs', {
      operationId: 'showCosts',
      summary: 'Credits by model, key, day or a member of the metadata',
      description:
        'Sums settled and reserved credits of the requests of the default source, without those of the sandbox. ' +
        '`since` and `until` select by the time of tracking.',
      filters: costFiltersSchema,
      answer: { description: 'The sums', schema: costsSchema },
      read: (wanted) => readCosts(db, wanted),
    }),
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
