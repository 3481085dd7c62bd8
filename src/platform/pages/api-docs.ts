import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { Router } from 'express'
import { html } from 'hono/html'
import { methodNotAllowed } from '../http/http.ts'
import { sendAsset } from './console-page.ts'

const viewer = path.dirname(fileURLToPath(import.meta.resolve('swagger-ui-dist/package.json')))
const assets = [
  ...['docs.css', 'docs.js'].map((name) => path.join(import.meta.dirname, 'assets', name)),
  ...['swagger-ui.css', 'swagger-ui-bundle.js', 'favicon-32x32.png'].map((name) => path.join(viewer, name)),
]

/** All files come from this listener. The viewer has inline styles and calls only this API. */
const contentSecurityPolicy =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

/** `/docs`: shows the API of the OpenAPI `document` to read and to try, from files of this listener alone. */
export function apiDocs({ title, document }: { title: string; document: string }): Router {
  const page = html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <title>${title}</title>
        <link rel="icon" type="image/png" href="/docs/favicon-32x32.png" />
        <link rel="stylesheet" href="/docs/swagger-ui.css" />
        <link rel="stylesheet" href="/docs/docs.css" />
      </head>
      <body>
        <div id="docs" data-document="${document}"></div>
        <script src="/docs/swagger-ui-bundle.js"></script>
        <script src="/docs/docs.js"></script>
      </body>
    </html>`
  const router = Router({ caseSensitive: true, strict: true })
  router.get('/docs', async (_req, res) => {
    res.set({ 'Content-Security-Policy': contentSecurityPolicy, 'X-Content-Type-Options': 'nosniff' })
    res.type('html').send(String(await page))
  })
  for (const file of assets) router.get(`/docs/${path.basename(file)}`, sendAsset(file))
  router.all('/docs', methodNotAllowed('GET', 'HEAD'))
  return router
}
