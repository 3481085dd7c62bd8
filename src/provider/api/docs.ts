import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { Router } from 'express'
import { html } from 'hono/html'
import { methodNotAllowed } from '../../runtime/http/http.ts'
import { openApiDocument } from './openapi.ts'

const assetsDir = path.dirname(fileURLToPath(import.meta.resolve('swagger-ui-dist/package.json')))
const assets = ['swagger-ui.css', 'swagger-ui-bundle.js', 'favicon-32x32.png']

/** Everything comes from here; the pages styles itself inline, and calls nobody but this API. */
const contentSecurityPolicy =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const page = html`<!doctype html>
  <html lang="en">
    <head>
      <meta charset="utf-8" />
      <meta name="viewport" content="width=device-width, initial-scale=1" />
      <title>Generation queue API</title>
      <link rel="icon" type="image/png" href="/docs/favicon-32x32.png" />
      <link rel="stylesheet" href="/docs/swagger-ui.css" />
    </head>
    <body>
      <div id="docs"></div>
      <script src="/docs/swagger-ui-bundle.js"></script>
      <script src="/docs/start.js"></script>
    </body>
  </html>`

const start = `SwaggerUIBundle({ url: '/openapi.json', dom_id: '#docs', deepLinking: true, validatorUrl: null })\n`

/** `/openapi.json`, and `/docs` that shows it; no key is needed to read them. */
export function docsRouter(baseUrl: string): Router {
  const document = openApiDocument(baseUrl)
  const router = Router({ caseSensitive: true, strict: true })
  router.get('/openapi.json', (_req, res) => void res.json(document))
  router.get('/docs', async (_req, res) => {
    res.set({ 'Content-Security-Policy': contentSecurityPolicy, 'X-Content-Type-Options': 'nosniff' })
    res.type('html').send(String(await page))
  })
  router.get('/docs/start.js', (_req, res) => void res.type('js').send(start))
  for (const asset of assets) {
    router.get(`/docs/${asset}`, (_req, res) => res.sendFile(asset, { root: assetsDir, maxAge: 3_600_000 }))
  }
  router.all(['/openapi.json', '/docs'], methodNotAllowed('GET', 'HEAD'))
  return router
}
