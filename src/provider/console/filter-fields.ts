import type { Request } from 'express'
import { z } from 'zod'
import { HttpError } from '../../platform/http/http.ts'
import { plainWords } from '../../platform/plain-words.ts'
import { requestIdSchema } from '../../wire/schemas.ts'

/** Any text of a form field. A field that was left empty is no filter. */
export const textSchema = z
  .string('must be given once')
  .trim()
  .max(100, 'must have at most 100 characters')
  .transform((text) => text || undefined)
  .optional()

/** One of several choices. */
export function choiceOf<const T extends string>(choices: readonly T[]) {
  return z
    .enum([...choices, ''], `must be one of ${choices.join(', ')}, or empty`)
    .transform((text) => choices.find((choice) => choice === text))
    .optional()
}

/** Where a page of a list ended: microseconds since 1970 and an id. */
export const cursorSchema = z
  .string()
  .regex(/^\d{1,16}_[0-9a-f-]{36}$/)
  .transform((text) => ({ atUs: text.split('_')[0] ?? '', id: text.split('_')[1] ?? '' }))
  .refine(({ id }) => requestIdSchema.safeParse(id).success)
  .optional()
  .catch((): never => {
    throw new HttpError(
      400,
      'invalid_filter',
      'this link to a page is not valid: start with the newest rows and follow Older',
    )
  })

/** Reads the filters of a page's address. Throws HttpError 400 for a wrong filter instead of ignoring it. */
export function filtersIn<T extends z.ZodType>(req: Request, schema: T): z.infer<T> {
  const parsed = schema.safeParse(req.query, plainWords)
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  throw new HttpError(
    400,
    'invalid_filter',
    `the filter ${issue?.path.join('.') ?? ''} ${issue?.message ?? 'is not valid'}`,
  )
}
