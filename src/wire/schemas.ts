import { z } from 'zod'

/** One schema for each body of the spec's Resources, States and Events. Only a submit refuses unknown members. */

export const requestStatuses = ['IN_QUEUE', 'IN_PROGRESS', 'COMPLETED', 'FAILED', 'CANCELED'] as const
export const requestStatusSchema = z.enum(requestStatuses)
export type RequestStatus = z.infer<typeof requestStatusSchema>

/** Any uuid, converted to lower case, which is how Postgres returns it. */
export const requestIdSchema = z.guid().transform((id) => id.toLowerCase())

const timestampSchema = z.iso.datetime({ offset: true })
const creditsSchema = z.number().nonnegative()
const pixelsSchema = z.int().positive()
// The spec sets no limit. This is a common limit of servers for a request line, and signed links fit.
export const urlSchema = z.string().min(1).max(8192)
/**
 * The most media of one request; a notification with more is parked. Models make at most ten, and half would do; at
 * double, one statement of 500 deliveries may write 100,000 rows of media.
 */
export const maxOutputItems = 100

export const resultErrorSchema = z.object({ code: z.string(), message: z.string() })

// The output in a webhook: only links (Events, Body on success).
const notifiedMediaSchema = z.object({ url: urlSchema })
export const notifiedOutputSchema = z.union([
  z.object({ images: z.array(notifiedMediaSchema).min(1).max(maxOutputItems) }),
  z.object({ video: notifiedMediaSchema }),
  z.object({ audio: notifiedMediaSchema }),
])

/** The schema of a notification with this output. */
export function notificationWith<O extends z.ZodType>(output: O) {
  return z.discriminatedUnion('status', [
    z.object({
      request_id: requestIdSchema,
      status: z.literal('OK'),
      payload: z.object({ model: z.string(), output, cost: creditsSchema }),
    }),
    z.object({ request_id: requestIdSchema, status: z.literal('ERROR'), error: resultErrorSchema }),
  ])
}
export const notificationSchema = notificationWith(notifiedOutputSchema)
export type Notification = z.infer<typeof notificationSchema>

// The output of the result endpoint (Resources, Output shapes).
export const imageSchema = z.object({
  url: urlSchema,
  width: pixelsSchema,
  height: pixelsSchema,
  original_url: urlSchema.optional(),
})
export const videoSchema = z.object({
  url: urlSchema,
  width: pixelsSchema,
  height: pixelsSchema,
  duration: z.number().nonnegative(),
})
const audioSchema = z.object({ url: urlSchema, duration: z.number().nonnegative().optional() })
export const outputSchema = z.union([
  z.object({ images: z.array(imageSchema).min(1).max(maxOutputItems) }),
  z.object({ video: videoSchema }),
  z.object({ audio: audioSchema }),
])
export type Output = z.infer<typeof outputSchema>

export const statusBodySchema = z.object({
  request_id: requestIdSchema,
  status: requestStatusSchema,
  queue_position: z.int().nonnegative().nullable(),
  progress: z.number().min(0).max(100),
  logs: z.array(z.string()),
})
export type StatusBody = z.infer<typeof statusBodySchema>

/** The schema of a result with this output. */
export function resultWith<O extends z.ZodType>(output: O) {
  return z.discriminatedUnion('status', [
    z.object({
      request_id: requestIdSchema,
      status: z.literal('COMPLETED'),
      model: z.string(),
      output,
      cost: creditsSchema,
      created_at: timestampSchema,
      completed_at: timestampSchema,
    }),
    z.object({
      request_id: requestIdSchema,
      status: z.literal('FAILED'),
      error: resultErrorSchema,
      cost: z.literal(0),
      model: z.string().optional(),
      created_at: timestampSchema.optional(),
      completed_at: timestampSchema.optional(),
    }),
    z.object({
      request_id: requestIdSchema,
      status: z.literal('CANCELED'),
      cost: creditsSchema.optional(),
      model: z.string().optional(),
      created_at: timestampSchema.optional(),
      completed_at: timestampSchema.optional(),
    }),
  ])
}
export const resultSchema = resultWith(outputSchema)
export type Result = z.infer<typeof resultSchema>

export const errorEnvelopeSchema = z.object({
  error: z.object({ type: z.string(), code: z.string(), message: z.string() }),
})
export type ErrorEnvelope = z.infer<typeof errorEnvelopeSchema>

export const submitBodySchema = z.strictObject({
  input: z.record(z.string(), z.unknown()),
  webhook_url: z.string().optional(),
})
export type SubmitBody = z.infer<typeof submitBodySchema>

export const submittedSchema = z.object({
  request_id: requestIdSchema,
  status: requestStatusSchema,
  queue_position: z.int().nonnegative().nullable(),
  status_url: z.url(),
  response_url: z.url(),
  cancel_url: z.url(),
  cost: creditsSchema,
})
export type Submitted = z.infer<typeof submittedSchema>

export const accountSchema = z.object({
  account_id: z.string(),
  balance: z.object({ credits: z.number() }),
  usage_30d: z.object({ requests: z.int(), credits_spent: z.number() }),
})
export type Account = z.infer<typeof accountSchema>

const multipliersSchema = z.record(z.string(), z.record(z.string(), z.number()))
const inputDescriptorSchema = z.object({
  type: z.enum(['string', 'number', 'boolean', 'array']),
  items: z.object({ type: z.enum(['string', 'number']), max_length: z.int().optional() }).optional(),
  required: z.boolean().optional(),
  enum: z.array(z.union([z.string(), z.number()])).optional(),
  default: z.union([z.string(), z.number(), z.boolean()]).optional(),
  min: z.number().optional(),
  max: z.number().optional(),
  max_length: z.int().optional(),
  max_items: z.int().optional(),
  description: z.string().optional(),
})
export type InputDescriptor = z.infer<typeof inputDescriptorSchema>

const modelBaseSchema = z.object({
  slug: z.string(),
  type: z.enum(['image', 'video', 'audio']),
  name: z.string(),
  capabilities: z.array(z.string()),
})
export const catalogEntrySchema = modelBaseSchema.extend({
  pricing: z.object({ credits: z.number(), note: z.string().optional() }),
})
export const modelSchema = modelBaseSchema.extend({
  input_schema: z.record(z.string(), inputDescriptorSchema),
  pricing: z.object({ credits_base: z.number(), multipliers: multipliersSchema.optional() }),
})
export type Model = z.infer<typeof modelSchema>
