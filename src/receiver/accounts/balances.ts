import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { later } from '../../platform/postgres/time.ts'

/** The credits that the live requests of an account settled in the last 30 days, as bounds. */
export type MonthSpending = {
  /** The landed cost of requests that were tracked in the 30 days. */
  least: number
  /** Also the cost of requests that may have ended in the 30 days; null if the cost of one is not known yet. */
  most: number | null
  /** The number of requests that were tracked in the 30 days. */
  requests: number
  /** True if the records go back further than 30 days. */
  covers: boolean
}

export type Spending = { lastHour: number; month: MonthSpending | undefined }

/** Claims the hourly question for each account whose keys are among these. Returns the keys to ask with. */
export async function claimAccounts(db: Database, keyNames: readonly string[], now: SQL): Promise<string[]> {
  const anHourAgo = later(now, -3600)
  const rows = await db.execute<{ key_name: string }>(sql`
    with due as (
      select distinct on (coalesce(b.account_id, b.key_name)) b.key_name from mediadock.call_budgets b
      where b.key_name = any(${sql.param([...keyNames])}::text[]) and not exists (
        select from mediadock.call_budgets o
        where (o.key_name = b.key_name or o.account_id = b.account_id) and o.account_asked_at > ${anHourAgo})
      order by coalesce(b.account_id, b.key_name), b.key_name
    )
    update mediadock.call_budgets b set account_asked_at = ${now} from due
    where b.key_name = due.key_name and coalesce(b.account_asked_at <= ${anHourAgo}, true)
    returning b.key_name`)
  return rows.map(({ key_name }) => key_name)
}

/** The source's answer about the account of a key, and what the receiver's own records say. */
type AccountAnswer = {
  keyName: string
  balance: number
  usage: { requests: number; credits_spent: number }
  spending: Spending
}

/** Stores a balance beside the key that asked for it, with what this receiver's requests of the account have cost. */
export async function noteBalance(db: Database, answer: AccountAnswer, now: SQL): Promise<void> {
  const { keyName, balance, usage, spending } = answer
  const { lastHour, month } = spending
  const difference = month === undefined ? null : differenceOf(month, usage)
  await db.execute(sql`
    update mediadock.call_budgets set balance = ${balance}::numeric, balance_at = ${now},
      spent_last_hour = ${lastHour}::numeric, cost_difference = ${difference}::numeric
    where key_name = ${keyName}`)
}

/**
 * Returns the share by which the source's usage lies outside the bounds that the records set. Null if the records
 * cover neither the 30 days nor all requests of the account.
 */
function differenceOf({ least, most, requests, covers }: MonthSpending, usage: AccountAnswer['usage']): number | null {
  if (!covers && requests !== usage.requests) return null
  const spent = usage.credits_spent
  const difference = Math.max(0, least - spent, most === null ? 0 : spent - most)
  return difference === 0 ? 0 : difference / Math.max(spent, least)
}

export async function noteCreditsRefused(db: Database, keyName: string, now: SQL): Promise<void> {
  await db.execute(sql`
    update mediadock.call_budgets set credits_refused_at = ${now} where key_name = ${keyName}`)
}
