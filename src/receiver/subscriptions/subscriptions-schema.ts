import { bigint, boolean, integer, sql, text, unique, uuid } from '../../platform/postgres/drizzle.ts'
import { instant, mediadock } from '../domain/base-schema.ts'

/** Services to which each change of the feed is posted: one row for each, which landing neither reads nor writes. */
export const subscriptions = mediadock.table(
  'subscriptions',
  {
    id: uuid('id').primaryKey().defaultRandom(),
    name: text('name').notNull(),
    url: text('url').notNull(),
    /** What is posted is signed with it, so it is kept as it is: see SECURITY.md. */
    secret: text('secret').notNull(),
    /** For how long what fails is tried again. */
    retryHours: integer('retry_hours').notNull().default(24),
    /** Changes that leave a result incomplete are passed over. */
    onlyComplete: boolean('only_complete').notNull().default(false),
    state: text('state', { enum: ['active', 'paused', 'stopped'] })
      .notNull()
      .default('active'),
    /** All up to here was answered 2xx. */
    position: bigint('position', { mode: 'number' }).notNull(),
    /** Beyond that, what was answered too while one before it was not: it is not posted again. */
    ahead: bigint('ahead', { mode: 'number' })
      .array()
      .notNull()
      .default(sql`'{}'`),
    /** In a row, since the last that was answered 2xx. */
    failures: integer('failures').notNull().default(0),
    failingSince: instant('failing_since'),
    nextAttemptAt: instant('next_attempt_at').notNull().defaultNow(),
    lastError: text('last_error'),
    lastAcceptedAt: instant('last_accepted_at'),
    pausedBy: text('paused_by'),
    pausedAt: instant('paused_at'),
    stoppedAt: instant('stopped_at'),
    stopReason: text('stop_reason', { enum: ['retries_spent', 'position_expired'] }),
    /** Who claimed it last is the only one who writes how far it is; by the clock of Postgres. */
    claims: integer('claims').notNull().default(0),
    leasedUntil: instant('leased_until').notNull().defaultNow(),
    createdAt: instant('created_at').notNull().defaultNow(),
  },
  (table) => [unique('subscriptions_name').on(table.name)],
)
