import express, { type Request, type Response } from 'express'
import { HttpError } from './http.ts'

const maxBodyBytes = 1_048_576

/** The JSON of a request's body. What is not JSON is 400 invalid_body, over 1 MiB 413, in an unknown encoding 415. */
export const readJsonBody = createJsonReader(() => {})

/** The same, where `check` sees the bytes before they are parsed, and throws the HttpError that refuses them. */
export function createJsonReader(check: (bytes: Buffer) => void): (req: Request, res: Response) => Promise<unknown> {
  const verify = (_req: unknown, _res: unknown, bytes: Buffer, encoding: string) => {
    if (encoding !== 'utf-8') throw unsupportedEncoding()
    check(bytes)
  }
  const parseJson = express.json({ limit: maxBodyBytes, strict: false, type: isJson, verify })
  return async (req, res) => {
    if (!isJson(req)) throw invalidBody('the Content-Type must be application/json')
    await new Promise<void>((resolve, reject) => {
      parseJson(req, res, (error?: unknown) => (error === undefined ? resolve() : reject(refusal(error))))
    })
    return req.body
  }
}

export function invalidBody(message: string): HttpError {
  return new HttpError(400, 'invalid_body', message)
}

function isJson(req: { headers: { 'content-type'?: string | undefined } }): boolean {
  const [mediaType = ''] = (req.headers['content-type'] ?? '').split(';', 1)
  return /^application\/(?:[\w.-]+\+)?json$/i.test(mediaType.trim())
}

function refusal(error: unknown): unknown {
  if (error instanceof HttpError) return error
  if (!(error instanceof Error) || !('status' in error) || typeof error.status !== 'number' || error.status >= 500) return error
  if (error.status === 413) return new HttpError(413, 'payload_too_large', `the body must have at most ${maxBodyBytes} bytes`)
  if (error.status === 415) return unsupportedEncoding()
  return invalidBody('the body is not valid JSON')
}

function unsupportedEncoding(): HttpError {
  return new HttpError(415, 'unsupported_encoding', 'the body must be UTF-8, plain or compressed with gzip, deflate or br')
}
