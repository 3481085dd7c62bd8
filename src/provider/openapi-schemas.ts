import { z } from 'zod'
import { submitBodySchema } from '../wire/schemas.ts'

/** What the API takes in that the receiver has no need to know. */

export const estimateBodySchema = submitBodySchema.pick({ input: true })

export const catalogQuerySchema = z.object({ type: z.enum(['image', 'video', 'audio']).optional() })
