import { bigint, boolean, instant, integer, sql, text, unique, uuid } from '../../platform/postgres/drizzle.ts'
import { mediadock } from '../domain/base-schema.ts'

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
    /** Changes that leave a result incomplete are passed over. */
    only_complete: boolean().notNull().default(false),
    state: text({ enum: ['active', 'paused', 'stopped'] })
      .notNull()
      .default('active'),
    /** All up to here was answered 2xx. */
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
