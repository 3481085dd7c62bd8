import { z } from 'zod'
import { requestStatuses } from '../../wire/schemas.ts'
import { arrivalOutcomes } from '../domain/arrivals-schema.ts'
import { ago } from './ago.ts'

/** A filter that cannot be applied, with the name of the parameter. */
export class InvalidFilterError extends Error {
  override name = 'InvalidFilterError'
  code = 'invalid_filter' as const
  parameter: string
  constructor(parameter: string, message: string) {
    super(`${parameter}: ${message}`)
    this.parameter = parameter
  }
}

export const defaultLimit = 50
export const maxLimit = 200

export const deliveryStates = ['pending', 'processed', 'parked'] as const
/** What processing made of a delivery: see LandingOutcome and inbox.ts. */
const processingOutcomes = ['landed', 'confirmed', 'no_effect', 'contradiction', 'key_mismatch', 'retry'] as const

// Postgres stores neither NUL nor half of a pair, so nothing can match it.
export const textFilter = z
  .string()
  .min(1, 'must not be empty')
  .max(255, 'must have at most 255 characters')
  .refine((text) => !text.includes('\0') && text.isWellFormed(), 'must not hold NUL or lone surrogates')
// What Postgres reads too: no zone is further from UTC, and a date of more digits is written otherwise.
const instantFilter = z
  .string()
  .max(40, 'must have at most 40 characters')
  .transform((text) => ago(text))
  .pipe(z.iso.datetime({ offset: true, error: 'must be a duration like 15m, or a time like 2026-01-31T03:00:00Z' }))
  .refine((text) => Date.parse(text) >= 0, 'must not be before 1970')
  .refine((text) => Date.parse(text) < Date.UTC(10_000, 0), 'must be before the year 10000')
  .refine((text) => /(?:Z|[+-](?:0\d:\d\d|1[0-3]:\d\d|14:00))$/.test(text), 'must have an offset of at most 14:00')
const idFilter = z.guid('must be a uuid')
const maxIds = 200
const idsFilter = z
  .string()
  .transform((text) => text.toLowerCase().split(','))
  .pipe(z.array(z.guid('must be uuids with commas between them')).max(maxIds, `must be at most ${maxIds} uuids`))
  .meta({ override: { type: 'string' } })
const limitFilter = z
  .string()
  .regex(/^\d{1,3}$/, `must be a whole number from 1 to ${maxLimit}`)
  .transform(Number)
  .pipe(z.int().min(1, `must be at least 1`).max(maxLimit, `must be at most ${maxLimit}`))
  .meta({ override: { type: 'integer', minimum: 1, maximum: maxLimit, default: defaultLimit } })

export const paging = {
  limit: limitFilter.optional().meta({ description: 'How many items a page has.' }),
  cursor: z.string().max(128).optional().meta({ description: 'next_cursor of the page before.' }),
}
export const times = {
  since: instantFilter.optional().meta({ description: 'From this time on.' }),
  until: instantFilter.optional().meta({ description: 'Before this time.' }),
}
/** As many digits as an integer of Postgres has in any case. */
const maxMeasure = 999_999_999
const atLeast = (what: string) =>
  z
    .union(
      [
        z.number(),
        z
          .string()
          .regex(/^\d{1,9}$/, 'must be a whole number')
          .transform(Number),
      ],
      'must be a whole number',
    )
    .pipe(z.int('must be a whole number').min(1, 'must be at least 1').max(maxMeasure, `must be at most ${maxMeasure}`))
    .optional()
    .meta({
      override: { type: 'integer', minimum: 1 },
      description: `${what}; looked for among the newest 200,000 arrivals of the range of time.`,
    })
const common = {
  state: z.enum(deliveryStates, `must be one of ${deliveryStates.join(', ')}`).optional(),
  reason: textFilter.optional().meta({ description: 'Why it was parked or refused.' }),
  request_id: idFilter.optional(),
  webhook_id: textFilter.optional(),
  key_name: textFilter.optional(),
  q: textFilter.min(4, 'must have at least 4 characters').optional().meta({
    description:
      'The whole or the beginning of a delivery id, request id or webhook id; beginnings of webhook ids are looked for among the newest 50,000 of the range of time.',
  }),
  min_ack_ms: atLeast('Acknowledged no faster, in milliseconds'),
  min_skew_seconds: atLeast('Signed by a clock that is off from ours by so much or more, either way'),
  ...times,
}

export const deliveryFlags = ['contradiction', 'key_mismatch', 'foreign_host', 'id_reused'] as const

export const deliveryOutcomes = [...arrivalOutcomes, ...processingOutcomes] as const

export const deliveryFiltersSchema = z.strictObject({
  ...common,
  outcome: z
    .enum(deliveryOutcomes, `must be one of ${deliveryOutcomes.join(', ')}`)
    .optional()
    .meta({
      description:
        'Of its last processing (landed, …), or of one of its arrivals (accepted, duplicate; refused, unavailable: of the newest 20,000 such arrivals before `until`).',
    }),
  model: textFilter.optional().meta({ description: 'Of its request.' }),
  flag: z
    .enum(deliveryFlags, `must be one of ${deliveryFlags.join(', ')}`)
    .optional()
    .meta({ description: 'A mark that is on it.' }),
  min_arrivals: atLeast('Came so many times or more'),
  ids: idsFilter.optional().meta({ description: `At most ${maxIds} ids of deliveries, with commas between them.` }),
})
export const arrivalFiltersSchema = z.strictObject({
  ...common,
  outcome: z.enum(arrivalOutcomes, `must be one of ${arrivalOutcomes.join(', ')}`).optional(),
})
export const requestFiltersSchema = z.strictObject({
  status: z.enum(requestStatuses, `must be one of ${requestStatuses.join(', ')}`).optional(),
  model: textFilter.optional(),
  key_name: textFilter.optional(),
  overdue: z
    .enum(['true', 'false'], 'must be true or false')
    .optional()
    .meta({ description: 'Without a terminal state for longer than STUCK_AFTER_SECONDS.' }),
  contradiction: z.enum(['true', 'false'], 'must be true or false').optional().meta({
    description: 'A delivery contradicts the stored result; among the newest 20,000 deliveries that have a flag.',
  }),
  q: z
    .string()
    .regex(/^(?:[0-9a-f]-?){4,32}$/i, 'must be a request id or how one begins, with at least 4 characters')
    .optional()
    .meta({ description: 'The whole or the beginning of a request id.' }),
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

/** Which page: `limit` items after the place that `cursor` names. */
export type Paging = { limit?: number | undefined; cursor?: string | undefined }

export const deliveryListSchema = deliveryFiltersSchema.extend(paging)
export const arrivalListSchema = arrivalFiltersSchema.extend(paging)
export const requestListSchema = requestFiltersSchema.extend(paging)
export const quarantineListSchema = quarantineFiltersSchema.extend(paging)

/** Checks what a caller asks for; throws InvalidFilterError for the first parameter that is wrong, unknown ones included. */
export function parseFilters<T extends z.ZodType>(schema: T, query: unknown): z.infer<T> {
  const parsed = schema.safeParse(query)
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  if (issue?.code === 'unrecognized_keys')
    throw new InvalidFilterError(issue.keys[0]?.slice(0, 60) || '""', 'is not a parameter of this call')
  // Of a list it is the whole that the caller knows by name.
  throw new InvalidFilterError(String(issue?.path[0] ?? ''), issue?.message ?? 'is not valid')
}
