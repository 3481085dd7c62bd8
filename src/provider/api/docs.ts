import { Router } from 'express'
import { apiDocs } from '../../pages/api-docs.ts'
import { methodNotAllowed } from '../../runtime/http/http.ts'
import { openApiDocument } from './openapi.ts'

/** `/openapi.json`, and `/docs` that shows it; no key is needed to read them. */
export function docsRouter(baseUrl: string): Router {
  const document = openApiDocument(baseUrl)
  const router = Router({ caseSensitive: true, strict: true })
  router.get('/openapi.json', (_req, res) => void res.json(document))
  router.all('/openapi.json', methodNotAllowed('GET', 'HEAD'))
  return router.use(apiDocs({ title: 'Generation queue API', document: '/openapi.json' }))
}
