import { Router } from 'express'
import { methodNotAllowed } from '../../platform/http/http.ts'
import { apiDocs } from '../../platform/pages/api-docs.ts'
import { openApiDocument } from './openapi.ts'

/** `/openapi.json`, and `/docs` that shows it; no key is needed to read them. */
export function docsRouter(baseUrl: string): Router {
  // Made when it is first asked for: a start need not wait for it.
  let document: object | undefined
  const router = Router({ caseSensitive: true, strict: true })
  router.get('/openapi.json', (_req, res) => void res.json((document ??= openApiDocument(baseUrl))))
  router.all('/openapi.json', methodNotAllowed('GET', 'HEAD'))
  return router.use(apiDocs({ title: 'Generation queue API', document: '/openapi.json' }))
}
