import express, { type Request, type Response } from 'express'
import type { z } from 'zod'
import { HttpError } from '../../runtime/http.ts'

const maxBodyBytes = 1_048_576
const parseJson = express.json({ limit: maxBodyBytes, strict: false, type: isJson })

/** The JSON body of a call, as `schema` says: 400 invalid_body where it is not, 413 over 1 MiB. No body at all is `{}`. */
export async function readBody<T extends z.ZodType>(req: Request, res: Response, schema: T): Promise<z.infer<T>> {
  const parsed = schema.safeParse(hasBody(req) ? await readJson(req, res) : {})
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  if (issue?.code === 'unrecognized_keys') throw invalidBody(`${[...issue.path, ...issue.keys.slice(0, 1)].join('.')} is not a member of this body`)
  const member = issue?.path.join('.') ?? ''
  throw invalidBody(member === '' ? 'the body must be a JSON object' : `${member}: ${issue?.message ?? 'is not valid'}`)
}

async function readJson(req: Request, res: Response): Promise<unknown> {
  if (!isJson(req)) throw invalidBody('the Content-Type must be application/json')
  await new Promise<void>((resolve, reject) => {
    parseJson(req, res, (error?: unknown) => (error === undefined ? resolve() : reject(refusal(error))))
  })
  return req.body
}

function hasBody(req: Request): boolean {
  return req.headers['transfer-encoding'] !== undefined || Number(req.headers['content-length'] ?? 0) > 0
}

function isJson(req: { headers: { 'content-type'?: string | undefined } }): boolean {
  const [mediaType = ''] = (req.headers['content-type'] ?? '').split(';', 1)
  return /^application\/(?:[\w.-]+\+)?json$/i.test(mediaType.trim())
}

function invalidBody(message: string): HttpError {
  return new HttpError(400, 'invalid_body', message)
}

function refusal(error: unknown): unknown {
  if (!(error instanceof Error) || !('status' in error) || typeof error.status !== 'number' || error.status >= 500) return error
  if (error.status === 413) return new HttpError(413, 'payload_too_large', `the body must have at most ${maxBodyBytes} bytes`)
  if (error.status === 415) return new HttpError(415, 'unsupported_encoding', 'the body must be UTF-8, plain or compressed with gzip, deflate or br')
  return invalidBody('the body is not valid JSON')
}
