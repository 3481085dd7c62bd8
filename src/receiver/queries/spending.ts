import { columnsOf } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import { later } from '../../platform/postgres/time.ts'
import type { MonthSpending, Spending } from '../accounts/balances.ts'
import { callBudgets } from '../domain/budgets-schema.ts'
import { sandboxOf } from '../domain/environment.ts'
import { generations } from '../domain/generations-schema.ts'
import { r } from './aliases.ts'
import { QueryTimeoutError, readWithin } from './deadline.ts'

const b = columnsOf(callBudgets, 'b')
const g = columnsOf(generations, 'g')

/**
 * Reads what requests of the account of this key have cost. The month is undefined if summing it takes too long.
 */
export async function readSpending(db: Database, keyName: string, now: SQL): Promise<Spending> {
  const rows = await readWithin(db, (tx) =>
    tx.execute<{ spent: string }>(sql`
      select coalesce(sum(credits), 0) as spent from (${requestsSince(keyName, later(now, -3600))}) as own`),
  )
  const lastHour = Number(one(rows, 'summing the cost of the last hour').spent)
  try {
    return { lastHour, month: await readWithin(db, (tx) => readMonth(tx, keyName, now)) }
  } catch (error) {
    if (error instanceof QueryTimeoutError) return { lastHour, month: undefined }
    throw error
  }
}

/** The provider counts a request when it ended: for this receiver, at some time between tracking and landing. */
async function readMonth(tx: Executor, keyName: string, now: SQL): Promise<MonthSpending> {
  const from = later(now, -30 * 86_400)
  type Row = { least: string; most: string; requests: string; covers: boolean; unknown: boolean }
  const rows = await tx.execute<Row>(sql`
    select coalesce(sum(cost) filter (where landed_at is not null and tracked_at >= ${from}), 0) as least,
      coalesce(sum(credits) filter (where coalesce(landed_at >= ${from}, true)), 0) as most,
      count(*) filter (where tracked_at >= ${from}) as requests,
      coalesce(bool_or(tracked_at < ${from}), false) as covers,
      coalesce(bool_or(credits is null and tracked_at >= ${later(now, -86_400)}), false) as unknown
    from (${requestsSince(keyName, later(now, -31 * 86_400))}) as own`)
  const { least, most, requests, covers, unknown } = one(rows, 'summing the cost of 30 days')
  return { least: Number(least), most: unknown ? null : Number(most), requests: Number(requests), covers }
}

/** The live requests of the account of this key that were tracked since then. */
function requestsSince(keyName: string, since: SQL): SQL {
  return sql`
    select ${r.tracked_at}, ${r.landed_at}, ${r.cost}, coalesce(${r.cost}, ${g.cost}) as credits
    from mediadock.requests r left join mediadock.generations g on ${g.idempotency_key} = ${r.idempotency_key}
    where ${r.tracked_at} >= ${since} and ${sandboxOf('r')} is distinct from true and ${r.key_name} in (
      select ${b.key_name} from mediadock.call_budgets b where ${b.key_name} = ${keyName}
        or ${b.account_id} = (select account_id from mediadock.call_budgets where key_name = ${keyName}))`
}
