import { z } from 'zod'
import { plainWords } from '../../platform/plain-words.ts'
import { requestStatuses } from '../../wire/schemas.ts'
import { arrivalOutcomes } from '../domain/arrivals-schema.ts'
import { feedStatusNames } from '../domain/feed-schema.ts'
import { maxInteger } from '../domain/limits.ts'
import { defaultPageItems, maxPageItems } from '../domain/page-limits.ts'
import { isStorable } from '../domain/storable.ts'
import type { FeedFilter } from '../feeding/feed-filter.ts'

/** An invalid filter. The message begins with the name of its parameter. */
export class InvalidFilterError extends Error {
  override name = 'InvalidFilterError'
  code = 'invalid_filter' as const
  constructor(parameter: string, message: string) {
    super(`${parameter}: ${message}`)
  }
}

const unitMs: Record<string, number> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** Turns `15m` into the time a quarter of an hour ago (units: s, m, h, d). Returns other text unchanged. */
export function ago(text: string, now = new Date()): string {
  const [, count, unit = ''] = /^(\d{1,6})([smhd])$/.exec(text) ?? []
  return count === undefined ? text : new Date(now.getTime() - Number(count) * (unitMs[unit] ?? 0)).toISOString()
}

export const deliveryStates = ['pending', 'processed', 'parked'] as const
/** The outcomes of processing: see LandingOutcome and inbox.ts. */
const processingOutcomes = ['landed', 'no_effect', 'contradiction', 'key_mismatch', 'source_mismatch', 'retry'] as const

// Postgres stores neither NUL nor lone surrogates, so no row can match such a text.
export const textFilter = z
  .string()
  .min(1)
  .max(255)
  .refine((text) => !text.includes('\0') && text.isWellFormed(), 'must not contain NUL or lone surrogates')
const isOrNot = z.enum(['true', 'false'], 'must be true or false')
/** Proxies may refuse longer query strings. */
const maxMetadataCharacters = 4000
const metadataFilter = z
  .string()
  .max(maxMetadataCharacters)
  .refine(isComparableObject, 'must be a JSON object, without NUL, lone surrogates or whole numbers from 2^53 on')
// Only times that Postgres reads in the same way: offsets up to 14:00 and four-digit years.
const instantFilter = z
  .string()
  .max(40)
  .transform((text) => ago(text))
  .pipe(z.iso.datetime({ offset: true, error: 'must be a duration like 15m, or a time like 2026-01-31T03:00:00Z' }))
  .refine((text) => Date.parse(text) >= 0, 'must not be before 1970')
  .refine((text) => Date.parse(text) < Date.UTC(10_000, 0), 'must be before the year 10000')
  .refine((text) => /(?:Z|[+-](?:0\d:\d\d|1[0-3]:\d\d|14:00))$/.test(text), 'must have an offset of at most 14:00')
const idFilter = z.guid()
const idsFilter = z
  .string()
  .transform((text) => text.toLowerCase().split(','))
  .pipe(
    z
      .array(z.guid('must be a comma-separated list of uuids'))
      .max(maxPageItems, `must be at most ${maxPageItems} uuids`),
  )
  .meta({
    override: ({ jsonSchema }) =>
      void Object.assign(jsonSchema, { type: 'string', items: undefined, maxItems: undefined }),
  })
/** Up to `most` digits as a number. Not a pattern, which the document of the API would show. */
export function digits(most: number, message: string) {
  return z
    .string()
    .refine((text) => /^\d+$/.test(text) && text.length <= most, message)
    .transform(Number)
}
const limitFilter = digits(3, `must be a whole number from 1 to ${maxPageItems}`)
  .pipe(z.int().min(1).max(maxPageItems))
  .meta({ override: { type: 'integer', minimum: 1, maximum: maxPageItems, default: defaultPageItems } })

export const paging = {
  limit: limitFilter.optional().describe('The number of items per page.'),
  cursor: z.string().max(128).optional().describe('The next_cursor of the previous page.'),
}
export const times = {
  since: instantFilter.optional().describe('From this time on.'),
  until: instantFilter.optional().describe('Before this time.'),
}
// A filter comes from an address as text, or from the body of a replay as a number.
const toNumber = (given: unknown) => (typeof given === 'string' && /^\d{1,9}$/.test(given) ? Number(given) : given)
const atLeast = (what: string) =>
  z
    .preprocess(toNumber, z.number('must be a whole number').pipe(z.int().min(1).max(maxInteger)))
    .optional()
    .meta({
      override: ({ jsonSchema }) => void Object.assign(jsonSchema, { type: 'integer', minimum: 1, maximum: undefined }),
      description: `${what}. Searches the newest 20,000 arrivals of the time range.`,
    })
const common = {
  state: z.enum(deliveryStates).optional(),
  reason: textFilter.optional().describe('The reason for parking or refusal.'),
  request_id: idFilter.optional(),
  webhook_id: textFilter.optional(),
  key_name: textFilter.optional(),
  source_name: textFilter
    .optional()
    .describe('A name in SOURCES_FILE, or `generation-queue`. Searches the newest 20,000.'),
  min_ack_ms: atLeast('The least milliseconds until acknowledgement'),
  min_skew_seconds: atLeast("The least difference between the signer's and the receiver's clock, in seconds"),
  ...times,
}

export const deliveryFlags = ['contradiction', 'key_mismatch', 'source_mismatch', 'foreign_host', 'id_reused'] as const

export const deliveryOutcomes = [...arrivalOutcomes, ...processingOutcomes] as const

export const deliveryFiltersSchema = z.strictObject({
  ...common,
  outcome: z.enum(deliveryOutcomes).optional().describe('Of its last processing, or of one of its arrivals.'),
  model: textFilter.optional().describe('The model of its request.'),
  flag: z.enum(deliveryFlags).optional().describe('A flag of the delivery.'),
  min_arrivals: atLeast('The least number of arrivals'),
  ids: idsFilter.optional().describe(`Delivery ids, separated by commas, at most ${maxPageItems}.`),
})
export const arrivalFiltersSchema = z.strictObject({
  ...common,
  outcome: z.enum(arrivalOutcomes).optional(),
})
/** The filters that the feed, subscriptions and requests share. Each has its own `status`. */
export const resultFilters = {
  source_name: textFilter.optional().describe('A name in SOURCES_FILE, or `generation-queue`.'),
  key_name: textFilter.optional(),
  model: textFilter.optional(),
  sandbox: isOrNot.optional().describe('Made with a sandbox key. Neither value matches where this is unknown.'),
  complete: isOrNot.optional().describe('The result is complete, as FAILED, CANCELED and REFUSED always are.'),
  metadata: metadataFilter.optional().describe("A JSON object that the submitter's metadata contains (`@>`)."),
}

export const requestFiltersSchema = z.strictObject({
  status: z.enum(requestStatuses).optional(),
  ...resultFilters,
  external_id: textFilter.optional().describe("The source's own id of the request, if it is not a uuid."),
  overdue: isOrNot.optional().describe('Without a terminal state for longer than STUCK_AFTER_SECONDS.'),
  contradiction: isOrNot.optional().describe('A delivery contradicts the result. Searches the newest 20,000 flagged.'),
  ids: idsFilter.optional().describe(`Request ids, separated by commas, at most ${maxPageItems}.`),
  ...times,
})
const quarantineFiltersSchema = z.strictObject({
  reason: textFilter.optional(),
  webhook_id: textFilter.optional(),
  ...times,
})

export type DeliveryFilters = z.infer<typeof deliveryFiltersSchema>
export type ArrivalFilters = z.infer<typeof arrivalFiltersSchema>
export type RequestFilters = z.infer<typeof requestFiltersSchema>
export type QuarantineFilters = z.infer<typeof quarantineFiltersSchema>

/** A page: `limit` items after the place of `cursor`. */
export type Paging = { limit?: number | undefined; cursor?: string | undefined }

export const deliveryListSchema = deliveryFiltersSchema.extend(paging)
export const arrivalListSchema = arrivalFiltersSchema.extend(paging)
export const requestListSchema = requestFiltersSchema.extend(paging)
export const quarantineListSchema = quarantineFiltersSchema.extend(paging)

/**
 * Returns true for a storable object without whole numbers that lose digits when they are parsed. The feed's filter is
 * written again from the parsed object, so a changed number would find other rows.
 */
function isComparableObject(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text, (_, inner: unknown) => {
      if (
        typeof inner === 'number' &&
        (!Number.isFinite(inner) || (Number.isInteger(inner) && !Number.isSafeInteger(inner)))
      )
        throw new RangeError('the number loses digits')
      return inner
    })
    return typeof value === 'object' && value !== null && !Array.isArray(value) && isStorable(value)
  } catch {
    return false
  }
}

/** Validates the parameters of a call. Throws InvalidFilterError for the first invalid or unknown one. */
export function parseFilters<T extends z.ZodType>(schema: T, query: unknown): z.infer<T> {
  const parsed = schema.safeParse(query, plainWords)
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  if (issue?.code === 'unrecognized_keys')
    throw new InvalidFilterError(issue.keys[0]?.slice(0, 60) || '""', 'is not a parameter of this call')
  // For a list, the name of the whole parameter is reported.
  throw new InvalidFilterError(String(issue?.path[0] ?? ''), issue?.message ?? 'is not valid')
}

const status = z.enum(feedStatusNames).optional()

/** A filter of the feed as query parameters, fields of a form or options of a command. */
export const feedFilterQuery = { ...resultFilters, status }
type FeedFilterQuery = z.infer<z.ZodObject<typeof feedFilterQuery>>

export function toFeedFilter({ sandbox, complete, metadata, ...named }: FeedFilterQuery): FeedFilter {
  return {
    ...named,
    sandbox: sandbox && sandbox === 'true',
    complete: complete && complete === 'true',
    metadata: metadata === undefined ? undefined : z.record(z.string(), z.unknown()).parse(JSON.parse(metadata)),
  }
}

const likeFilter = <T extends z.ZodType>(name: 'sandbox' | 'complete' | 'source_name', schema: T) =>
  schema.optional().describe(resultFilters[name].description ?? '')

/** The same filter as JSON. */
export const feedFilterSchema = z
  .strictObject({
    source_name: likeFilter('source_name', textFilter),
    key_name: textFilter.optional(),
    model: textFilter.optional(),
    status,
    sandbox: likeFilter('sandbox', z.boolean()),
    complete: likeFilter('complete', z.boolean()),
    metadata: z
      .record(z.string(), z.unknown())
      .refine((given) => resultFilters.metadata.safeParse(JSON.stringify(given)).success, 'is too long or not storable')
      .optional()
      .describe("A JSON object that the submitter's metadata contains, compared as by Postgres's `@>`."),
  })
  .meta({ id: 'FeedFilter', description: 'Which changes are posted. All given members must match.' })
