import type { z } from 'zod'
import { createDocument, type ZodOpenApiPathsObject } from 'zod-openapi'
import { version } from '../../runtime/release.ts'
import { deliveryFiltersComponent } from './deliveries.ts'
import { withExamples } from './examples/call-examples.ts'
import { examples } from './examples/examples.ts'
import type { Operation } from './operation.ts'

const tags = {
  Generations: 'Submits that charge once, and the requests that are tracked.',
  Results: 'What services read: a result once there is one, and every change of all of them in order.',
  Deliveries: 'What arrived and what became of it; what was refused; replaying.',
  'On-call': 'What is wrong, since when, and what acts on it.',
  'This API': 'Its own description.',
} as const
export type Tag = keyof typeof tags

/** OpenAPI 3.1 of the API, made from the very schemas that validate what comes in and type what goes out. */
export function openApiDocument(operations: readonly Operation[]) {
  const paths: ZodOpenApiPathsObject = {}
  for (const { method, path, document } of operations) {
    const call = withExamples(document, examples[document.operationId ?? ''])
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
        securitySchemes: { bearer: { type: 'http', scheme: 'bearer', description: 'INTERNAL_TOKEN, where one is set' } },
      },
    },
    { override: describeRequestId },
  )
}

/** A transform has no JSON schema; ours only put a uuid into lower case. */
function describeRequestId({ zodSchema, jsonSchema }: { zodSchema: z.core.$ZodTypes; jsonSchema: z.core.JSONSchema.BaseSchema }): void {
  if (zodSchema._zod.def.type !== 'pipe' || zodSchema._zod.def.in._zod.def.type !== 'string' || jsonSchema.type !== undefined) return
  jsonSchema.type = 'string'
}
