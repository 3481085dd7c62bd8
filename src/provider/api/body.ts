import type { Request, Response } from 'express'
import type { z } from 'zod'
import { HttpError } from '../../platform/http/http.ts'
import { createJsonReader, invalidBody } from '../../platform/http/json-body.ts'

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

/** The deepest valid input has three levels. Recursive code overflows its stack only far above this limit. */
const maxLevels = 16
/** Limit of all members and items together. The largest valid input of the built-in catalog has about sixty. */
const maxValues = 2000

const [quote, backslash, comma] = [0x22, 0x5c, 0x2c]
const openings = new Set([0x5b, 0x7b])
const closings = new Set([0x5d, 0x7d])

/**
 * Refuses JSON with too many or too deeply nested values, before parsing. Many small values take far longer to parse
 * and check than one long text, and block all other callers.
 */
export function weighJson(bytes: Buffer): void {
  let depth = 0
  let values = 1
  for (let at = 0; at < bytes.length; at += 1) {
    const byte = bytes[at] ?? 0
    if (byte === quote) at = endOfString(bytes, at)
    else if (byte === comma) values += 1
    else if (closings.has(byte)) depth -= 1
    else if (openings.has(byte)) {
      depth += 1
      values += 1
    } else continue
    if (depth > maxLevels + 1)
      throw new HttpError(422, 'model_input_invalid', `input is nested deeper than ${maxLevels} levels`)
    if (values > maxValues)
      throw new HttpError(422, 'model_input_invalid', `the body has more than ${maxValues} members and items`)
  }
}

/** The end of the string that begins at `from`, or the end of the bytes if it does not end. */
function endOfString(bytes: Buffer, from: number): number {
  for (let at = bytes.indexOf(quote, from + 1); at !== -1; at = bytes.indexOf(quote, at + 1)) {
    let escapes = 0
    while (bytes[at - 1 - escapes] === backslash) escapes += 1
    if (escapes % 2 === 0) return at
  }
  return bytes.length
}
