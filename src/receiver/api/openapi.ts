import { z } from 'zod'
import { createDocument, type ZodOpenApiPathsObject } from 'zod-openapi'
import { version } from '../../platform/release.ts'
import { deliveryFiltersComponent } from './deliveries.ts'
import { withExamples } from './examples.ts'
import { documentOf, type Operation } from './operation.ts'

const tags = {
  Generations: 'Submit generations with at most one charge, and track requests.',
  Provider: 'Models, prices and the account, for services without an API key.',
  Results: 'Read results: one request, or all changes in order.',
  Deliveries: 'Accepted and refused webhooks, and replays.',
  'On-call': 'Present problems, and the actions against them.',
  'This API': 'The description of this API.',
} as const
export type Tag = keyof typeof tags

/** Builds the OpenAPI 3.1 document from the schemas that validate requests and type answers. */
export function openApiDocument(operations: readonly Operation[]): object {
  const paths: ZodOpenApiPathsObject = {}
  for (const operation of operations) {
    const path = `/api${operation.path}`
    paths[path] = { ...paths[path], [operation.method]: documentOf(operation) }
  }
  const document = createDocument(
    {
      openapi: '3.1.0',
      info: {
        title: 'mediadock internal API',
        version,
        description: 'Submits and tracks generations, reads results, and shows received webhooks.',
      },
      tags: Object.entries(tags).map(([name, description]) => ({ name, description })),
      servers: [{ url: '/' }],
      security: [{ bearer: [] }, {}],
      paths,
      components: {
        schemas: { DeliveryFilters: deliveryFiltersComponent },
        securitySchemes: {
          bearer: { type: 'http', scheme: 'bearer', description: 'INTERNAL_TOKEN, if it is set' },
        },
      },
    },
    { override: describeTransform },
  )
  return withExamples(document)
}

type Described = { zodSchema: z.core.$ZodTypes; jsonSchema: z.core.JSONSchema.BaseSchema }

/**
 * Describes schemas with a transform, which have no JSON schema. Ours start from a string. The generated schema is
 * replaced by the `override` of the zod schema, or else by type string, with the format of a uuid.
 */
function describeTransform({ zodSchema, jsonSchema }: Described): void {
  const described: unknown = z.globalRegistry.get(zodSchema)?.['override']
  const isDescribed = typeof described === 'object' && described !== null && 'type' in described
  const from = zodSchema._zod.def.type === 'pipe' ? zodSchema._zod.def.in._zod.def : undefined
  const isString = from?.type === 'string' && jsonSchema.type === undefined
  if (!isDescribed && !isString) return
  for (const name of Object.keys(jsonSchema)) if (name !== 'description' && name !== 'override') delete jsonSchema[name]
  if (isString) jsonSchema.type = 'string'
  if (isString && Reflect.get(from, 'format') === 'guid') jsonSchema.format = 'uuid'
}
