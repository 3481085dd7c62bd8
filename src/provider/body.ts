import type { Request, Response } from 'express'
import type { z } from 'zod'
import { HttpError } from '../runtime/http.ts'
import { invalidBody, readJsonBody } from '../runtime/json-body.ts'

/** The deepest input that a schema can ask for has three levels; far below what would overflow a recursive walk. */
const maxDepth = 16

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

/**
 * Walks without recursion: nesting that is deep enough would end a recursive walk
 * with an overflow. `__proto__` is refused here, since zod would drop it silently.
 */
function checkOutline(body: unknown): void {
  let level: unknown[] = [body]
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > maxDepth) throw new HttpError(422, 'model_input_invalid', `input is nested deeper than ${maxDepth} levels`)
    const next: unknown[] = []
    for (const value of level) {
      if (typeof value !== 'object' || value === null) continue
      if (Object.hasOwn(value, '__proto__')) throw new HttpError(422, 'model_input_invalid', 'input.__proto__ is not a parameter of this model')
      for (const member of Object.values(value)) next.push(member)
    }
    level = next
  }
}
