import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Executor } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import type * as fetching from '../domain/budgets-schema.ts'
import { sharesOf, slotCount } from '../fetching/call-budget.ts'

export type CallBudget = {
  /** Calls in the last 60 seconds. */
  calls: number
  /** How many of the calls were submits. */
  submits: number
  blockedUntil: Date | undefined
  blockedReason: string | undefined
  /** Calls of the key get no usable answer, or are refused: see key-health.ts. */
  isFailing: boolean
  account: AccountBudget | undefined
}

/** The budget that all keys of an account share. A key has none until its account is known: see accounts/accounts.ts. */
type AccountBudget = {
  /** The provider's id of the account. */
  id: string
  /** Calls of all its keys in the last 60 seconds. */
  calls: number
  limitPerMinute: number
}

type BudgetRow = RowOf<
  typeof fetching.callBudgets,
  'key_name' | 'blocked_until' | 'blocked_reason' | 'failing_since' | 'account_id' | 'account_limit'
> &
  Pick<CallBudget, 'calls' | 'submits'> & { account_calls: number }

/** Returns the spent calls of each key and of its account, and whether the key is blocked. */
export async function callBudgets(db: Executor, now: Date): Promise<Map<string, CallBudget>> {
  const oldest = Math.floor(now.getTime() / 1000) - slotCount
  const lately = (counted: SQL) => sql`coalesce((
      select sum(n) from unnest(${counted}) with ordinality as s(n, i)
      where slots_until - (i - 1) > ${oldest}::bigint), 0)::int`
  const rows = await db.execute<BudgetRow>(sql`
    select key_name, blocked_until, blocked_reason, failing_since, account_id, account_limit, calls,
      ${lately(sql`submit_slots`)} as submits, sum(calls) over (partition by account_id)::int as account_calls
    from (select *, ${lately(sql`slots`)} as calls from mediadock.call_budgets) as budgets`)
  return new Map(
    rows.map(({ key_name, calls, submits, account_calls, ...row }) => [
      key_name,
      {
        calls,
        submits,
        blockedUntil: row.blocked_until === null ? undefined : new Date(row.blocked_until),
        blockedReason: row.blocked_reason ?? undefined,
        isFailing: row.failing_since !== null,
        account:
          row.account_id === null || row.account_limit === null
            ? undefined
            : { id: row.account_id, calls: account_calls, limitPerMinute: row.account_limit },
      },
    ]),
  )
}

/** Returns the calls that a key has left in the current 60 seconds, of its own limit and of its account's. */
export function callsLeft(limitPerMinute: number, budget: CallBudget | undefined): number {
  const ofKey = limitPerMinute - (budget?.calls ?? 0)
  const account = budget?.account
  return Math.max(0, account === undefined ? ofKey : Math.min(ofKey, account.limitPerMinute - account.calls))
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
