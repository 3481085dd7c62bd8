import { z } from 'zod'
import { feedStatusNames } from '../domain/feed-schema.ts'
import type { FeedFilter } from '../feeding/feed-filter.ts'
import { resultFilters, textFilter } from './filters.ts'

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

/** The same filter as JSON. */
export const feedFilterSchema = z
  .strictObject({
    source_name: textFilter.optional().meta(resultFilters.source_name.meta() ?? {}),
    key_name: textFilter.optional(),
    model: textFilter.optional(),
    status,
    sandbox: z
      .boolean()
      .optional()
      .meta(resultFilters.sandbox.meta() ?? {}),
    complete: z
      .boolean()
      .optional()
      .meta(resultFilters.complete.meta() ?? {}),
    metadata: z
      .record(z.string(), z.unknown())
      .refine((given) => resultFilters.metadata.safeParse(JSON.stringify(given)).success, 'is too long or not storable')
      .optional()
      .describe("A JSON object that the submitter's metadata contains, compared as by Postgres's `@>`."),
  })
  .meta({ id: 'FeedFilter', description: 'Which changes are posted. All given members must match.' })
