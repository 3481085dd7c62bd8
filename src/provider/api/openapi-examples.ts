import type { z } from 'zod'
import type * as wire from '../../wire/schemas.ts'
import { builtInCatalog } from '../catalog/catalog-file.ts'
import type * as schemas from './openapi-schemas.ts'

/** One generation from submit to end, for the API documentation: a sunrise that takes four seconds. */

const request_id = '2f0d6c1e-8f5b-4c3a-9d2e-000000000001'
const base = 'https://api.example.com/v1/requests'
const model = 'aurora-image'

const { slug, type, name, capabilities, input_schema, pricing } = builtInCatalog().get(model)!

export const submitBody = {
  input: { prompt: 'a sunrise over snow', aspect_ratio: '16:9' },
  webhook_url: 'https://hooks.example.com/webhooks',
} satisfies z.input<typeof wire.submitBodySchema>

export const estimateBody = { input: submitBody.input } satisfies z.input<typeof schemas.estimateBodySchema>
export const estimate = { credits: pricing.credits_base } satisfies z.input<typeof schemas.estimateSchema>

export const submitted = {
  request_id,
  status: 'IN_QUEUE',
  queue_position: 2,
  status_url: `${base}/${request_id}/status`,
  response_url: `${base}/${request_id}`,
  cancel_url: `${base}/${request_id}/cancel`,
  cost: pricing.credits_base,
} satisfies z.input<typeof wire.submittedSchema>

export const status = {
  request_id,
  status: 'IN_PROGRESS',
  queue_position: null,
  progress: 40,
  logs: [],
} satisfies z.input<typeof wire.statusBodySchema>

export const canceled = { ...status, status: 'CANCELED', progress: 0 } satisfies z.input<typeof wire.statusBodySchema>

export const result = {
  request_id,
  status: 'COMPLETED',
  model,
  output: { images: [{ url: 'https://media.example.com/sunrise.png', width: 1280, height: 720 }] },
  cost: pricing.credits_base,
  created_at: '2026-01-31T03:00:00.000Z',
  completed_at: '2026-01-31T03:00:04.000Z',
} satisfies z.input<typeof wire.resultSchema>

export const notification = {
  request_id,
  status: 'OK',
  payload: {
    model,
    output: { images: [{ url: 'https://media.example.com/sunrise.png' }] },
    cost: pricing.credits_base,
  },
} satisfies z.input<typeof wire.notificationSchema>

export const listed = {
  data: [
    {
      slug,
      type,
      name,
      capabilities: [...capabilities],
      pricing: { credits: pricing.credits_base, note: 'per image' },
    },
  ],
} satisfies z.input<typeof schemas.catalogSchema>

export const described = {
  slug,
  type,
  name,
  capabilities: [...capabilities],
  input_schema,
  pricing: { credits_base: pricing.credits_base },
} satisfies z.input<typeof wire.modelSchema>

export const account = {
  account_id: 'acme',
  balance: { credits: 496 },
  usage_30d: { requests: 1, credits_spent: 4 },
} satisfies z.input<typeof wire.accountSchema>
