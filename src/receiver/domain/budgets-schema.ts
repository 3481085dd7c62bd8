import { sql } from 'drizzle-orm'
import { bigint, boolean, integer, text } from 'drizzle-orm/pg-core'
import { instant, mediadock } from './base-schema.ts'

/** The calls that a key may still make, per key and over all replicas: see call-budget.ts. */
export const callBudgets = mediadock.table('call_budgets', {
  keyName: text('key_name').primaryKey(),
  /** Calls in each of the last 61 seconds, the newest first; `slotsUntil` is the Unix second of the first. */
  slots: integer('slots').array().notNull(),
  /** Those of them that only tried whether this key knows a request that is another's. */
  trialSlots: integer('trial_slots')
    .array()
    .notNull()
    .default(sql`array_fill(0, array[61])`),
  slotsUntil: bigint('slots_until', { mode: 'number' }).notNull(),
  /** Whether the last statement that wanted a call got it; it reads that back. */
  granted: boolean('granted').notNull(),
  /** No call before this: Retry-After, a spent RateLimit window, or the breaker after a 401. */
  blockedUntil: instant('blocked_until'),
  blockedReason: text('blocked_reason'),
})
