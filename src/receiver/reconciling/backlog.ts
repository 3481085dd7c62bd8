import { sql } from 'drizzle-orm'
import { columnsOf } from '../../runtime/postgres/columns.ts'
import { answered } from '../../runtime/postgres/errors.ts'
import type { Executor } from '../../runtime/postgres/postgres.ts'
import * as schema from '../domain/schema.ts'
import { callsFor } from '../fetching/call-budget.ts'
import { isDue, type StuckAfter } from './due.ts'

const requests = columnsOf(schema.requests)

export type Backlog = {
  /** Requests whose next call to the provider is due. */
  due: number
  /** How long asking for all of them takes within the budget of the keys; 0 when nothing is due. */
  minutes: number
}

/** What the reconciler still has to ask for, and how long that will take. */
export async function readBacklog(
  db: Executor,
  { now, stuckAfterSeconds, fetchRatePerMinute }: StuckAfter & { fetchRatePerMinute: number },
): Promise<Backlog> {
  const rows = await db.execute<{ due: number }>(sql`
    select count(*)::int as due from mediadock.requests
    where ${isDue({ now, stuckAfterSeconds })}
    group by ${requests.key_name}`)
  answered(rows, 'reading the backlog')
  const callsPerMinute = callsFor('reconciling', fetchRatePerMinute)
  return {
    due: rows.reduce((sum, { due }) => sum + due, 0),
    // Each key spends its own budget, so the longest line decides.
    minutes: Math.ceil(Math.max(0, ...rows.map(({ due }) => due / callsPerMinute))),
  }
}
