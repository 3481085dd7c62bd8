import { Router } from 'express'
import { methodNotAllowed } from '../../platform/http/http.ts'
import { apiDocs } from '../../platform/pages/api-docs.ts'
import { openApiDocument } from './openapi.ts'

/** Serves `/openapi.json`, and `/docs`, which renders it. Both need no key. */
export function docsRouter(baseUrl: string): Router {
  // Created on first use, so that it does not slow down the start.
  let document: object | undefined
  const router = Router({ caseSensitive: true, strict: true })
  router.get('/openapi.json', (_req, res) => void res.json((document ??= openApiDocument(baseUrl))))
  router.all('/openapi.json', methodNotAllowed('GET', 'HEAD'))
  return router.use(apiDocs({ title: 'Generation queue API', document: '/openapi.json' }))
}
