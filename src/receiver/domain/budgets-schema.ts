import { bigint, boolean, instant, integer, numeric, sql, text } from '../../platform/postgres/drizzle.ts'
import { mediadock } from './base-schema.ts'

const noCalls = sql`array_fill(0, array[61])`

/** The budget of provider calls of each key, shared by all replicas: see call-budget.ts. */
export const callBudgets = mediadock.table('call_budgets', {
  key_name: text().primaryKey(),
  /** Calls in each of the last 61 seconds, newest first. `slots_until` is the Unix second of the first entry. */
  slots: integer().array().notNull(),
  /** How many of the calls in `slots` were submits. */
  submit_slots: integer().array().notNull().default(noCalls),
  /** How many of the calls in `slots` had the purpose `trial` (call-budget.ts). */
  trial_slots: integer().array().notNull().default(noCalls),
  /** The calls that completing was refused in each second. Beyond its share, submitting leaves it that many. */
  missed_slots: integer().array().notNull().default(noCalls),
  /** The calls that submitting was refused in each second. Beyond its share, completing leaves it that many. */
  missed_submit_slots: integer().array().notNull().default(noCalls),
  slots_until: bigint({ mode: 'number' }).notNull(),
  /** The answer of the last statement that asked for a call. The statement returns it. */
  granted: boolean().notNull(),
  /** No call before this time: Retry-After, a used-up RateLimit window, or a pause after a 401 or 403. */
  blocked_until: instant(),
  blocked_reason: text(),
  /** How many times in a row the provider refused the key. Above 0, only one call at a time tries the key. */
  refusals: integer().notNull().default(0),
  /** The start of an outage: the provider answers no key, or refuses this one. Null without an outage. */
  failing_since: instant(),
  /** The end of the last outage. Polls that it held up are due at once. */
  recovered_at: instant(),
  /**
   * The account of the key, as the provider names it, and the calls per minute of the whole account: see accounts/accounts.ts.
   */
  account_id: text(),
  account_limit: integer(),
  /** When a submit with this key was last refused with 402 insufficient_credits. */
  credits_refused_at: instant(),
  /** When a process last asked for the balance of the account with this key: see accounts/balances.ts. */
  account_asked_at: instant(),
  /** The answer: the credits that were left, when, and what this receiver's requests had cost in the hour before. */
  balance: numeric(),
  balance_at: instant(),
  spent_last_hour: numeric(),
  /** By which share the landed cost of 30 days differs from the provider's. Null if the two cannot be compared. */
  cost_difference: numeric(),
})
