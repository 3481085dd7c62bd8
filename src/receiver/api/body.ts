import type { Request, Response } from 'express'
import type { z } from 'zod'
import { invalidBody, readJsonBody } from '../../platform/http/json-body.ts'
import { plainWords } from '../../platform/plain-words.ts'

/**
 * Reads the JSON body and validates it: 400 invalid_body if it does not match, 413 over 1 MiB. A missing body is `{}`.
 */
export async function readBody<T extends z.ZodType>(req: Request, res: Response, schema: T): Promise<z.infer<T>> {
  const parsed = schema.safeParse(hasBody(req) ? await readJsonBody(req, res) : {}, plainWords)
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  if (issue?.code === 'unrecognized_keys')
    throw invalidBody(`${[...issue.path, ...issue.keys.slice(0, 1)].join('.')} is not a member of this body`)
  const member = issue?.path.join('.') ?? ''
  throw invalidBody(member === '' ? 'the body must be a JSON object' : `${member}: ${issue?.message ?? 'is not valid'}`)
}

function hasBody(req: Request): boolean {
  return req.headers['transfer-encoding'] !== undefined || Number(req.headers['content-length'] ?? 0) > 0
}
