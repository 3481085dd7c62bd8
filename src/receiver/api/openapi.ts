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
  const document = createDocument({
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
  })
  return withExamples(document)
}
