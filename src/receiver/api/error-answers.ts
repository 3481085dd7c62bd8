import { z } from 'zod'
import type { ZodOpenApiResponsesObject } from 'zod-openapi'
import { errorBody, HttpError } from '../../platform/http/http.ts'
import { errorEnvelopeSchema } from '../../wire/schemas.ts'

/** An error that a call can answer, and its condition. */
export type ErrorAnswer = { status: number; when: string; type?: string }

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
