import { sql } from '../../platform/postgres/drizzle.ts'
import type { Executor } from '../../platform/postgres/postgres.ts'

type Balances = {
  /** Keys whose submits were refused with 402 insufficient_credits within the last hour. */
  refused: readonly { keyName: string; at: string }[]
  /** The last known balance of each account, named by the key that asked for it. */
  accounts: readonly AccountBalance[]
}

type AccountBalance = {
  keyName: string
  credits: number
  spentLastHour: number
  /**
   * By which share the provider's usage of 30 days lies outside the bounds of our records (MonthSpending of
   * accounts/balances.ts): 0 within them, null if they cannot be compared.
   */
  difference: number | null
}

/** Reads which keys lack credits, and the balances of accounts. */
export async function readBalances(tx: Executor, now: Date): Promise<Balances> {
  const at = sql`${now.toISOString()}::timestamptz`
  const refused = await tx.execute<{ keyName: string; at: string }>(sql`
    select b.key_name as "keyName", b.credits_refused_at as at from mediadock.call_budgets b
    where b.credits_refused_at > ${at} - interval '1 hour' order by b.key_name`)
  // A balance is read each hour. One older than two hours belongs to a removed or failing key.
  const accounts = await tx.execute<AccountBalance>(sql`
    select distinct on (coalesce(b.account_id, b.key_name)) b.key_name as "keyName", b.balance::float8 as credits,
      coalesce(b.spent_last_hour, 0)::float8 as "spentLastHour", b.cost_difference::float8 as difference
    from mediadock.call_budgets b
    where b.balance_at > ${at} - interval '2 hours'
    order by coalesce(b.account_id, b.key_name), b.balance_at desc`)
  return {
    refused: refused.map(({ keyName, at }) => ({ keyName, at: new Date(at).toISOString() })),
    accounts,
  }
}
