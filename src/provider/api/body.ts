import type { Request, Response } from 'express'
import type { z } from 'zod'
import { HttpError } from '../../runtime/http/http.ts'
import { createJsonReader, invalidBody } from '../../runtime/http/json-body.ts'
import { weighJson } from './json-weight.ts'

const readJsonBody = createJsonReader(weighJson)

/**
 * The JSON body of a request, as `schema` says. What is not JSON or has the
 * wrong outline is 400 invalid_body, over 1 MiB 413 (CONTRACT, body not JSON).
 */
export async function readBody<T extends z.ZodType>(req: Request, res: Response, schema: T): Promise<z.infer<T>> {
  const body = await readJsonBody(req, res)
  checkOutline(body)
  const parsed = schema.safeParse(body)
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  const member = issue?.path.join('.') ?? ''
  if (member === 'webhook_url') throw new HttpError(400, 'webhook_url_invalid', 'webhook_url must be a string')
  throw invalidBody(member === '' ? 'the body must be a JSON object' : `${member}: ${issue?.message ?? 'is invalid'}`)
}

/** `__proto__` is refused here, since zod would drop it silently. How deep and how many it can be, weighJson has bounded. */
function checkOutline(body: unknown): void {
  let level: unknown[] = [body]
  while (level.length > 0) {
    const next: unknown[] = []
    for (const value of level) {
      if (typeof value !== 'object' || value === null) continue
      if (Object.hasOwn(value, '__proto__'))
        throw new HttpError(422, 'model_input_invalid', 'input.__proto__ is not a parameter of this model')
      for (const member of Object.values(value)) next.push(member)
    }
    level = next
  }
}
