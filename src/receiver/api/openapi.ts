import { z } from 'zod'
import { createDocument, type ZodOpenApiPathsObject } from 'zod-openapi'
import { version } from '../../platform/release.ts'
import { deliveryFiltersComponent } from './deliveries.ts'
import { withExamples } from './examples/call-examples.ts'
import { examples } from './examples/examples.ts'
import type { Operation } from './operation.ts'

const tags = {
  Generations: 'Submits that charge once, and the requests that are tracked.',
  Provider: 'Models, prices and the account, for services that hold no API key.',
  Results: 'What services read: a result once there is one, and every change of all of them in order.',
  Deliveries: 'What arrived and what became of it; what was refused; replaying.',
  'On-call': 'What is wrong, since when, and what acts on it.',
  'This API': 'Its own description.',
} as const
export type Tag = keyof typeof tags

/** OpenAPI 3.1 of the API, made from the very schemas that validate what comes in and type what goes out. */
export function openApiDocument(operations: readonly Operation[]) {
  const paths: ZodOpenApiPathsObject = {}
  for (const { method, path, document, examples: own } of operations) {
    const call = withExamples(document, own ?? examples[document.operationId ?? ''])
    paths[`/api${path}`] = { ...paths[`/api${path}`], [method]: call }
  }
  return createDocument(
    {
      openapi: '3.1.0',
      info: {
        title: 'mediadock internal API',
        version,
        description:
          'Submits and tracks generations, reads results, and shows what arrived and what became of it. Lists may come from a standby: the header X-Mediadock-As-Of then says when the last change was made that it has.',
      },
      tags: Object.entries(tags).map(([name, description]) => ({ name, description })),
      servers: [{ url: '/' }],
      security: [{ bearer: [] }, {}],
      paths,
      components: {
        schemas: { DeliveryFilters: deliveryFiltersComponent },
        securitySchemes: {
          bearer: { type: 'http', scheme: 'bearer', description: 'INTERNAL_TOKEN, where one is set' },
        },
      },
    },
    { override: describeTransform },
  )
}

/**
 * A transform has no JSON schema of its own. Ours begin with a string: what a
 * schema's `override` says of it, or that it is one, replaces what was found.
 */
function describeTransform({
  zodSchema,
  jsonSchema,
}: {
  zodSchema: z.core.$ZodTypes
  jsonSchema: z.core.JSONSchema.BaseSchema
}): void {
  const described: unknown = z.globalRegistry.get(zodSchema)?.['override']
  const isDescribed = typeof described === 'object' && described !== null && 'type' in described
  const isString =
    zodSchema._zod.def.type === 'pipe' &&
    zodSchema._zod.def.in._zod.def.type === 'string' &&
    jsonSchema.type === undefined
  if (!isDescribed && !isString) return
  for (const name of Object.keys(jsonSchema)) if (name !== 'description' && name !== 'override') delete jsonSchema[name]
  if (isString) jsonSchema.type = 'string'
}
