import { bigint, boolean, integer, sql, text } from '../../platform/postgres/drizzle.ts'
import { instant, mediadock } from './base-schema.ts'

/** The calls that a key may still make, per key and over all replicas: see call-budget.ts. */
export const callBudgets = mediadock.table('call_budgets', {
  keyName: text('key_name').primaryKey(),
  /** Calls in each of the last 61 seconds, the newest first; `slotsUntil` is the Unix second of the first. */
  slots: integer('slots').array().notNull(),
  /** Those of them that were submits. */
  submitSlots: integer('submit_slots')
    .array()
    .notNull()
    .default(sql`array_fill(0, array[61])`),
  /** Those of them that only tried whether this key knows a request that is another's. */
  trialSlots: integer('trial_slots')
    .array()
    .notNull()
    .default(sql`array_fill(0, array[61])`),
  /** How often completing was refused a call in each of them: submitting leaves it as many. */
  missedSlots: integer('missed_slots')
    .array()
    .notNull()
    .default(sql`array_fill(0, array[61])`),
  /** How often submitting was: completing leaves it as many. */
  missedSubmitSlots: integer('missed_submit_slots')
    .array()
    .notNull()
    .default(sql`array_fill(0, array[61])`),
  slotsUntil: bigint('slots_until', { mode: 'number' }).notNull(),
  /** Whether the last statement that wanted a call got it; it reads that back. */
  granted: boolean('granted').notNull(),
  /** No call before this: Retry-After, a spent RateLimit window, or a rest after a 401 or 403. */
  blockedUntil: instant('blocked_until'),
  blockedReason: text('blocked_reason'),
  /** How often in a row the provider refused the key (401, 403); while it is above 0, one call at a time finds out whether it still does. */
  refusals: integer('refusals').notNull().default(0),
  /** Since when the provider gives no answer to anybody, or refuses this key; null while all is well. */
  failingSince: instant('failing_since'),
  /** When that ended last: what was held up by it is due at once. */
  recoveredAt: instant('recovered_at'),
})
