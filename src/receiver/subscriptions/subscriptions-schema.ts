import {
  bigint,
  boolean,
  instant,
  integer,
  jsonb,
  sql,
  type SQL,
  text,
  unique,
  uuid,
} from '../../platform/postgres/drizzle.ts'
import { mediadock } from '../domain/base-schema.ts'
import type { FeedFilter } from '../feeding/feed-filter.ts'

const now = sql`now()`

/** One row per service to which the changes that match its filter are posted. Landing does not use it. */
export const subscriptions = mediadock.table(
  'subscriptions',
  {
    id: uuid().primaryKey().defaultRandom(),
    name: text().notNull(),
    url: text().notNull(),
    /** Signs posts, so it is stored in plain text: see SECURITY.md. */
    secret: text().notNull(),
    retry_hours: integer().notNull().default(24),
    /** The changes to post: feeding/feed-filter.ts. */
    filter: jsonb().$type<FeedFilter>().notNull().default({}),
    /** `complete` of the filter, for the previous release beside this one. The next release drops it. */
    only_complete: boolean().notNull().default(false),
    state: text({ enum: ['active', 'paused', 'stopped'] })
      .notNull()
      .default('active'),
    /** All changes up to this position were answered 2xx or skipped by the filter. */
    position: bigint({ mode: 'number' }).notNull(),
    /** Positions after that which were answered 2xx too, while one before them was not. They are not posted again. */
    ahead: bigint({ mode: 'number' }).array().notNull().default([]),
    failures: integer().notNull().default(0),
    failing_since: instant(),
    next_attempt_at: instant().notNull().default(now),
    last_error: text(),
    last_accepted_at: instant(),
    paused_by: text(),
    paused_at: instant(),
    stopped_at: instant(),
    stop_reason: text({ enum: ['retries_spent', 'position_expired'] }),
    /** The fence: only the latest claimant may write the position. Times are those of Postgres. */
    claims: integer().notNull().default(0),
    leased_until: instant().notNull().default(now),
    created_at: instant().notNull().default(now),
  },
  (table) => [unique('subscriptions_name').on(table.name)],
)

/** SQL: the filter of the row `alias`, also of a row that the previous release wrote. */
export function filterOf(alias: string): SQL {
  const row = sql.raw(alias)
  return sql`(case when ${row}.only_complete then '{"complete": true}'::jsonb else '{}' end || ${row}.filter)`
}
