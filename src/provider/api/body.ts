import type { Request, Response } from 'express'
import type { z } from 'zod'
import { HttpError } from '../../platform/http/http.ts'
import { createJsonReader, invalidBody } from '../../platform/http/json-body.ts'
import { weighJson } from './json-weight.ts'

const readJsonBody = createJsonReader(weighJson)

/**
 * Reads the JSON body of a submit or an estimate with `schema`. An invalid shape is 400 invalid_body (decisions, body
 * not JSON).
 */
export async function readBody<T extends z.ZodType>(req: Request, res: Response, schema: T): Promise<z.infer<T>> {
  const body = await readJsonBody(req, res)
  const parsed = schema.safeParse(body)
  if (!parsed.success) throw refusal(parsed.error.issues[0])
  // zod drops this member silently. A deeper one is inside a value of a wrong type, which is refused later.
  if ([body, Object(body).input].some((given) => Object.hasOwn(Object(given), '__proto__')))
    throw new HttpError(422, 'model_input_invalid', 'input.__proto__ is not a parameter of this model')
  return parsed.data
}

/** Words the validator's issue for the caller, with JSON's types instead of the validator's. */
function refusal(issue: z.core.$ZodIssue | undefined): HttpError {
  const [member] = issue?.path ?? []
  if (member === 'webhook_url') return new HttpError(400, 'webhook_url_invalid', 'webhook_url must be a string')
  if (member === 'input') return invalidBody('input is required, and must be a JSON object')
  if (issue?.code !== 'unrecognized_keys') return invalidBody('the body must be a JSON object')
  const unknown = issue.keys[0]?.slice(0, 80).toWellFormed()
  return invalidBody(`${unknown} is not a member of this body: it takes input and webhook_url`)
}
