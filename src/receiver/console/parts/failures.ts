import type { ErrorRequestHandler } from 'express'
import { html } from 'hono/html'
import { HttpError } from '../../../platform/http/http.ts'
import type { Logger } from '../../../platform/logger.ts'
import { asHttpError } from '../../api/operation.ts'
import { problem } from './parts.ts'
import { sendConsolePage, type ConsoleDeps } from './shell.ts'

export type ReadAttempt<T> = { ok: true; value: T; status: 200 } | { ok: false; problem: string; status: number }

/**
 * Reads the data of a page. An expected failure (a wrong filter, a slow query, no Postgres) is returned, so that the
 * page can show it above its form. Other errors are thrown.
 */
export async function tryRead<T>(logger: Logger, read: () => T | Promise<T>): Promise<ReadAttempt<T>> {
  try {
    return { ok: true, value: await read(), status: 200 }
  } catch (error) {
    const known = asHttpError(error, logger)
    if (!(known instanceof HttpError)) throw error
    return { ok: false, problem: inWords(known), status: known.status }
  }
}

const titles: Record<number, string> = {
  400: 'Not possible',
  403: 'Not allowed',
  404: 'Not found',
  405: 'Not possible',
  503: 'Not available now',
}

const unexpected = 'An internal error. The log has the details. Try again, and report it if it repeats.'

/** Answers errors to browsers with a page, to programs with the error envelope. */
export function failurePage(deps: ConsoleDeps): ErrorRequestHandler {
  return (error, req, res, next) => {
    const known = asHttpError(
      error instanceof URIError ? new HttpError(404, 'not_found', 'the address is not valid percent-encoding') : error,
      deps.logger,
    )
    if (res.headersSent || req.path.startsWith('/api/') || req.accepts(['json', 'html']) !== 'html') return next(known)
    const failure = known instanceof HttpError ? known : undefined
    if (!failure)
      deps.logger.error({ err: error, method: req.method, path: req.path }, 'unexpected error while showing a page')
    const { status = 500, headers = {} } = failure ?? {}
    res.set(headers)
    const title = titles[status] ?? 'Something failed'
    const text = failure ? inWords(failure) : unexpected
    return sendConsolePage(deps, res, {
      title,
      status,
      body: html`<h1>${title}</h1>${problem(text)}<p><a href="/">Now</a> · <a href="/deliveries">Deliveries</a> · <a href="/requests">Requests</a></p>`,
    })
  }
}

function inWords({ code, message }: HttpError): string {
  const text = `${message.slice(0, 1).toUpperCase()}${message.slice(1)}.`
  switch (code) {
    case 'invalid_filter':
      return `The filter ${message}.`
    case 'unavailable':
      return `${text} If the database is down, webhooks are answered 503 and the provider sends them again. Check the database first, then reload this page.`
    case 'not_found':
      return `${text} Retention may have pruned it, or the link was cut short.`
    default:
      return text
  }
}
