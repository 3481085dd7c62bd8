import { columnsOf } from '../../platform/postgres/columns.ts'
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

/** Services to which each change of the feed is posted: one row for each, which landing neither reads nor writes. */
export const subscriptions = mediadock.table(
  'subscriptions',
  {
    id: uuid().primaryKey().defaultRandom(),
    name: text().notNull(),
    url: text().notNull(),
    /** What is posted is signed with it, so it is kept as it is: see SECURITY.md. */
    secret: text().notNull(),
    /** For how long what fails is tried again. */
    retry_hours: integer().notNull().default(24),
    /** Which changes are posted: feeding/feed-filter.ts. */
    filter: jsonb().$type<FeedFilter>().notNull().default({}),
    /** `complete` of the filter, for the version before this one, which may run beside it: it goes with the next. */
    only_complete: boolean().notNull().default(false),
    state: text({ enum: ['active', 'paused', 'stopped'] })
      .notNull()
      .default('active'),
    /** All up to here was answered 2xx, or passed over by the filter. */
    position: bigint({ mode: 'number' }).notNull(),
    /** Beyond that, what was answered too while one before it was not: it is not posted again. */
    ahead: bigint({ mode: 'number' })
      .array()
      .notNull()
      .default(sql`'{}'`),
    /** In a row, since the last that was answered 2xx. */
    failures: integer().notNull().default(0),
    failing_since: instant(),
    next_attempt_at: instant()
      .notNull()
      .default(sql`now()`),
    last_error: text(),
    last_accepted_at: instant(),
    paused_by: text(),
    paused_at: instant(),
    stopped_at: instant(),
    stop_reason: text({ enum: ['retries_spent', 'position_expired'] }),
    /** Who claimed it last is the only one who writes how far it is; by the clock of Postgres. */
    claims: integer().notNull().default(0),
    leased_until: instant()
      .notNull()
      .default(sql`now()`),
    created_at: instant()
      .notNull()
      .default(sql`now()`),
  },
  (table) => [unique('subscriptions_name').on(table.name)],
)

/** The filter of a row of the table by this alias, one that the version before this one wrote included. */
export function filterOf(alias: string): SQL {
  const { filter, only_complete } = columnsOf(subscriptions, alias)
  return sql`(case when ${only_complete} then '{"complete": true}'::jsonb else '{}' end || ${filter})`
}
