import { urlencoded, type Request, type RequestHandler } from 'express'
import { HttpError } from '../http/http.ts'

/** Reads a form. An unreadable one is answered 400 without the parser's error, which would log the form. */
export const readForm = formReader('64kb')

/** Reads a form with another size limit. */
export function formReader(limit: string): RequestHandler {
  const parse = urlencoded({ extended: false, limit })
  return (req, res, next) => {
    parse(req, res, (error?: unknown) =>
      next(
        error === undefined
          ? undefined
          : new HttpError(400, 'invalid_form', 'the form cannot be read: go back, reload the page and try again'),
      ),
    )
  }
}

/** The fields of a form, without those that were left empty. */
export function fieldsOf(req: Request): Record<string, string> {
  const body: object = typeof req.body === 'object' && req.body !== null ? req.body : {}
  return Object.fromEntries(
    Object.entries(body).flatMap(([name, value]) => (typeof value === 'string' && value !== '' ? [[name, value]] : [])),
  )
}
