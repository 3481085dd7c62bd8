import { z } from 'zod'
import { createDocument, type ZodOpenApiPathsObject } from 'zod-openapi'
import { version } from '../../platform/release.ts'
import { deliveryFiltersComponent } from './deliveries.ts'
import { exampleValues } from './example-values.ts'
import type { Operation } from './operation.ts'

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
  for (const { method, path, document } of operations)
    paths[`/api${path}`] = { ...paths[`/api${path}`], [method]: document }
  const document = createDocument(
    {
      openapi: '3.1.0',
      info: {
        title: 'mediadock internal API',
        version,
        description:
          'Submits and tracks generations, reads results, and shows received webhooks. Lists may come from a ' +
          'standby. The header X-Mediadock-As-Of then gives the time of the last change on the standby.',
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

/** Adds examples to the members of all schemas. */
function withExamples(document: object): object {
  return JSON.parse(JSON.stringify(document), (key, value) => {
    if (key !== 'properties') return value
    for (const [name, example] of Object.entries(exampleValues))
      if (name in value && value[name].type !== 'null') value[name] = { ...value[name], example }
    return value
  })
}

/**
 * Describes schemas with a transform, which have no JSON schema. Ours start from a string. The generated schema is
 * replaced by the `override` of the zod schema, or else by type string.
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
