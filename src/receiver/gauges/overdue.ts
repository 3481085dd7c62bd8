import { sql } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Executor } from '../../platform/postgres/postgres.ts'
import type { PollOutcome } from '../domain/poll-endings.ts'
import { isOverdue, type StuckAfter } from '../reconciling/due.ts'

/** The most frequent outcome of the last polls of overdue requests. The outcome is null if they were never polled. */
export type OverduePolls = { outcome: PollOutcome | null; detail: string | null; requests: number }

export async function readOverduePolls(db: Executor, when: StuckAfter): Promise<OverduePolls | undefined> {
  const [most] = await db.execute<OverduePolls>(sql`
    select outcome, mode() within group (order by detail) as detail, count(*)::int as requests
    from (
      select r.poll_outcome as outcome, r.poll_detail as detail from mediadock.requests r
      where ${isOverdue(when)} limit 1000
    ) as overdue group by outcome order by requests desc, outcome limit 1`)
  return most
}

/** Counts tracked requests without a terminal state for longer than `stuckAfterSeconds`. */
export async function countOverdue(db: Executor, when: StuckAfter): Promise<number> {
  const rows = await db.execute<{ n: string }>(sql`
    select count(*) as n from mediadock.requests r where ${isOverdue(when)}`)
  return Number(one(rows, 'counting overdue requests').n)
}
