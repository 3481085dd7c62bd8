import { isUtf8 } from 'node:buffer'
import express, { type Request, type Response } from 'express'
import { HttpError } from './http.ts'

const maxBodyBytes = 1_048_576

/** Reads a JSON body in UTF-8 of at most 1 MiB. Throws 415, 413 or 400 invalid_body. */
export const readJsonBody = createJsonReader(() => {})

/** Creates a JSON reader that calls `check` with the bytes before parsing. `check` throws HttpError to refuse them. */
export function createJsonReader(check: (bytes: Buffer) => void): (req: Request, res: Response) => Promise<unknown> {
  const verify = (_req: unknown, _res: unknown, bytes: Buffer, encoding: string) => {
    if (encoding !== 'utf-8' || !isUtf8(bytes)) throw unsupportedMediaType()
    check(bytes)
  }
  const parseJson = express.json({ limit: maxBodyBytes, strict: false, type: isJson, verify })
  return async (req, res) => {
    if (!isJson(req)) throw unsupportedMediaType()
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
  return mediaType.trim().toLowerCase() === 'application/json'
}

function refusal(error: unknown): unknown {
  if (error instanceof HttpError) return error
  if (!(error instanceof Error) || !('status' in error) || typeof error.status !== 'number' || error.status >= 500)
    return error
  if (error.status === 413)
    return new HttpError(413, 'payload_too_large', `the body must have at most ${maxBodyBytes} bytes`)
  if (error.status === 415) return unsupportedMediaType()
  return invalidBody('the body is not valid JSON')
}

function unsupportedMediaType(): HttpError {
  const message = 'the body must be application/json in UTF-8, plain or compressed with gzip, deflate or br'
  return new HttpError(415, 'unsupported_media_type', message)
}
