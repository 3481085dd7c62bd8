import { z } from 'zod'
import type { ZodOpenApiResponsesObject } from 'zod-openapi'
import { errorEnvelopeSchema } from '../../wire/schemas.ts'
import { errorBody, HttpError } from '../http/http.ts'

/** An error that a call can answer, and its condition. */
export type ErrorAnswer = { status: number; when: string; type?: string }

/** The errors that every call can answer, including errors before the request is read. */
export const anyCallErrors = {
  request_timeout: { status: 408, when: 'the request did not arrive within 30 seconds' },
  headers_too_large: { status: 431, when: 'the headers have more than 16 KiB' },
  internal_error: { status: 500, when: 'an internal error' },
} as const satisfies Record<string, ErrorAnswer>

/** The errors of a call that reads a JSON body. */
export const jsonBodyErrors = {
  payload_too_large: { status: 413, when: 'the body has more than 1 MiB' },
  unsupported_media_type: {
    status: 415,
    when: 'the body is not application/json in UTF-8, or is compressed other than with gzip, deflate or br',
  },
} as const satisfies Record<string, ErrorAnswer>

/** The error answers of one call in OpenAPI: each status with the codes that this call can give, and no others. */
export function errorResponses<Code extends string>(
  errors: Readonly<Record<Code, ErrorAnswer>>,
  codes: readonly Code[],
): ZodOpenApiResponsesObject {
  const byStatus = Map.groupBy(new Set(codes), (code) => errors[code].status)
  return Object.fromEntries(
    [...byStatus]
      .toSorted(([a], [b]) => a - b)
      .map(([status, [first, ...others]]) => {
        if (first === undefined) throw new Error('a status has a code')
        const { when, type } = errors[first]
        const example = errorBody(new HttpError(status, first, when, type === undefined ? {} : { type }))
        const schema = z.object({
          error: errorEnvelopeSchema.shape.error.extend({
            type: z.literal(example.error.type),
            code: z.enum([first, ...others]),
          }),
        })
        const description = [first, ...others].map((code) => `${code}: ${errors[code].when}`).join('; ')
        return [status, { description, content: { 'application/json': { schema, example } } }]
      }),
  )
}
