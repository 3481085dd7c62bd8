import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Executor } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import type * as fetching from '../domain/budgets-schema.ts'
import { sharesOf, slotCount } from '../fetching/call-budget.ts'

/** The budget of a key. While `failing_since` is set, its calls get no usable answer or are refused: see key-health.ts. */
export type CallBudget = RowOf<
  typeof fetching.callBudgets,
  'key_name' | 'blocked_until' | 'blocked_reason' | 'failing_since' | 'account_id' | 'account_limit'
> & {
  /** Calls in the last 60 seconds. */
  calls: number
  /** How many of the calls were submits. */
  submits: number
  /** Calls of all keys of the account in the last 60 seconds. Null until it is known: see accounts/accounts.ts. */
  account_calls: number | null
}

/** Returns the spent calls of each key and of its account, and whether the key is blocked. */
export async function callBudgets(db: Executor, now: Date): Promise<Map<string, CallBudget>> {
  const oldest = Math.floor(now.getTime() / 1000) - slotCount
  const lately = (counted: SQL) => sql`coalesce((
      select sum(n) from unnest(${counted}) with ordinality as s(n, i)
      where slots_until - (i - 1) > ${oldest}::bigint), 0)::int`
  const rows = await db.execute<CallBudget>(sql`
    select key_name, blocked_until, blocked_reason, failing_since, account_id, account_limit, calls,
      ${lately(sql`submit_slots`)} as submits,
      (case when account_id is not null then sum(calls) over (partition by account_id) end)::int as account_calls
    from (select *, ${lately(sql`slots`)} as calls from mediadock.call_budgets) as budgets`)
  return new Map(rows.map((row) => [row.key_name, row]))
}

/** Returns the calls that a key has left in the current 60 seconds, of its own limit and of its account's. */
export function callsLeft(limitPerMinute: number, budget: CallBudget | undefined): number {
  const ofAccount = (budget?.account_limit ?? Infinity) - (budget?.account_calls ?? 0)
  return Math.max(0, Math.min(limitPerMinute - (budget?.calls ?? 0), ofAccount))
}

/** Returns the calls per minute that completing can use, at the submit rate of the last minute. */
export function completionsPerMinute(limitPerMinute: number, budget: CallBudget | undefined): number {
  return Math.max(sharesOf(limitPerMinute).completing, limitPerMinute - (budget?.submits ?? 0))
}

/** Returns the calls that each key has left in the current 60 seconds. */
export async function remainingCalls(db: Executor, limitPerMinute: number, now: Date): Promise<Map<string, number>> {
  const budgets = await callBudgets(db, now)
  return new Map([...budgets].map(([keyName, budget]) => [keyName, callsLeft(limitPerMinute, budget)]))
}
