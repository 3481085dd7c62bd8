import { z } from 'zod'
import { catalogEntrySchema, submitBodySchema } from '../../wire/schemas.ts'
import { languages } from '../messages/messages.ts'

/** Bodies and headers of the API that the receiver does not use. */

export const estimateBodySchema = submitBodySchema.extend({
  webhook_url: z.unknown().optional().meta({ description: 'Ignored: the body of a submit can be estimated as it is.' }),
})
export const estimateSchema = z.object({ credits: z.number().nonnegative() })

export const catalogQuerySchema = z.object({ type: z.enum(['image', 'video', 'audio']).optional() })
export const catalogSchema = z.object({ data: z.array(catalogEntrySchema) })

export const logsQuerySchema = z.object({
  logs: z.string().optional().meta({
    description: '`1` returns the execution logs. With any other value, or none, `logs` is an empty array.',
    example: '1',
  }),
})

export const modelPathSchema = z.object({ model: z.string().meta({ description: 'Exact slug from the catalog.' }) })
export const requestPathSchema = z.object({ request_id: z.guid() })
export const languageHeaderSchema = z.object({
  'Accept-Language': z
    .string()
    .optional()
    .meta({
      description: `The language of \`message\`: ${languages.join(', ')}. English if none matches.`,
      example: 'de',
    }),
})

export const submitHeaderSchema = languageHeaderSchema.extend({
  'Idempotency-Key': z.uuidv4().optional().meta({ description: 'One per logical request; remembered for 24 hours.' }),
})

/** On answers with a message for people: errors and FAILED results. */
export const contentLanguageSchema = z.object({
  'Content-Language': z.enum(languages).meta({ description: 'The language of `message`.' }),
  Vary: z.string().meta({ description: 'Accept-Language' }),
})

/** On every answer to a call that was counted: the window with the fewest calls left. */
export const rateHeadersSchema = z.object({
  'RateLimit-Limit': z.int().nonnegative().meta({ description: 'Requests per minute in this window.' }),
  'RateLimit-Remaining': z.int().nonnegative().meta({ description: 'Requests left in this window.' }),
  'RateLimit-Reset': z.int().nonnegative().meta({ description: 'Seconds until at least one more call is possible.' }),
})

/** On every delivery of a webhook (spec, Events). */
export const webhookHeadersSchema = z.object({
  'X-Service-Webhook-Id': z.string().meta({ description: 'Identical across retries.' }),
  'X-Service-Timestamp': z.string().meta({ description: 'Unix time in seconds of this attempt.' }),
  'X-Service-Signature': z.string().meta({
    description: '`t=<timestamp>,v1=<hex HMAC-SHA256 of "<timestamp>.<raw body>">` with the signing secret of the key.',
  }),
})
