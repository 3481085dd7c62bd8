import { bigint, boolean, instant, integer, sql, text } from '../../platform/postgres/drizzle.ts'
import { mediadock } from './base-schema.ts'

/** The calls that a key may still make, per key and over all replicas: see call-budget.ts. */
export const callBudgets = mediadock.table('call_budgets', {
  key_name: text().primaryKey(),
  /** Calls in each of the last 61 seconds, the newest first; `slots_until` is the Unix second of the first. */
  slots: integer().array().notNull(),
  /** Those of them that were submits. */
  submit_slots: integer()
    .array()
    .notNull()
    .default(sql`array_fill(0, array[61])`),
  /** Those of them that only tried whether this key knows a request that is another's. */
  trial_slots: integer()
    .array()
    .notNull()
    .default(sql`array_fill(0, array[61])`),
  /** How often completing was refused a call in each of them: submitting leaves it as many. */
  missed_slots: integer()
    .array()
    .notNull()
    .default(sql`array_fill(0, array[61])`),
  /** How often submitting was: completing leaves it as many. */
  missed_submit_slots: integer()
    .array()
    .notNull()
    .default(sql`array_fill(0, array[61])`),
  slots_until: bigint({ mode: 'number' }).notNull(),
  /** Whether the last statement that wanted a call got it; it reads that back. */
  granted: boolean().notNull(),
  /** No call before this: Retry-After, a spent RateLimit window, or a rest after a 401 or 403. */
  blocked_until: instant(),
  blocked_reason: text(),
  /** How often in a row the provider refused the key (401, 403); while it is above 0, one call at a time finds out whether it still does. */
  refusals: integer().notNull().default(0),
  /** Since when the provider gives no answer to anybody, or refuses this key; null while all is well. */
  failing_since: instant(),
  /** When that ended last: what was held up by it is due at once. */
  recovered_at: instant(),
  /** The account of the key, as the provider named it, and the calls a minute that all keys of the account share: see accounts.ts. */
  account_id: text(),
  account_limit: integer(),
})
