import path from 'node:path'
import express from 'express'
import type { ErrorRequestHandler, Response } from 'express'
import { HttpError, methodNotAllowed, notFound } from '../../platform/http/http.ts'
import { mediaTypes } from '../engines/media-store.ts'

/** The type of a served file. Other extensions are never served. */
function contentTypeOf(file: string): string | undefined {
  return Object.entries(mediaTypes).find(([extension]) => path.extname(file) === `.${extension}`)?.[1]
}

/**
 * Serves the files under {media_url}: GET and HEAD with conditions and one byte range. A file never changes once it has
 * its name, so it may be cached for a year. Other paths are 404 in the spec's envelope.
 */
export function serveMedia(mediaDir: string): express.Router {
  const router = express.Router({ caseSensitive: true })
  router.use((req, res, next) => {
    if (req.method !== 'GET' && req.method !== 'HEAD') return methodNotAllowed('GET', 'HEAD')(req, res, next)
    if (contentTypeOf(req.path) === undefined) return notFound(req, res, next)
    return next()
  })
  router.use(
    express.static(path.resolve(mediaDir), {
      dotfiles: 'ignore',
      index: false,
      redirect: false,
      fallthrough: false,
      maxAge: '365d',
      immutable: true,
      setHeaders: setMediaHeaders,
    }),
  )
  router.use(answerStaticError)
  return router
}

function setMediaHeaders(res: Response, file: string): void {
  res.set({
    'Content-Type': contentTypeOf(file) ?? 'application/octet-stream',
    // The name contains a digest of the content, so it is a strong tag that is equal on every replica.
    ETag: `"${path.basename(file)}"`,
    'X-Content-Type-Options': 'nosniff',
    // A media file that is opened as a page may show itself but run nothing.
    'Content-Security-Policy': "default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'",
    // Pages of other origins embed these links.
    'Cross-Origin-Resource-Policy': 'cross-origin',
  })
}

const answerStaticError: ErrorRequestHandler = (error, req, res, next) => {
  if (error instanceof HttpError || typeof error?.status !== 'number' || error.status >= 500) return next(error)
  // Otherwise the refusal would be cached like a file.
  for (const name of ['Cache-Control', 'ETag', 'Last-Modified', 'Content-Type', 'Content-Length'])
    res.removeHeader(name)
  if (error.status !== 416) return notFound(req, res, next)
  const range = res.getHeader('Content-Range') ?? error.headers?.['Content-Range']
  return next(
    new HttpError(416, 'range_not_satisfiable', 'the range lies outside the file', {
      headers: typeof range === 'string' ? { 'content-range': range } : {},
    }),
  )
}
