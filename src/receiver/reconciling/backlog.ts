import { sql } from 'drizzle-orm'
import type { Executor } from '../../runtime/postgres/postgres.ts'
import { callsFor } from '../fetching/call-budget.ts'
import { columnsOf } from '../../runtime/postgres/columns.ts'
import * as schema from '../domain/schema.ts'

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
  { now, stuckAfterSeconds, fetchRatePerMinute }: { now: Date; stuckAfterSeconds: number; fetchRatePerMinute: number },
): Promise<Backlog> {
  const at = sql`${now.toISOString()}::timestamptz`
  const rows = await db.execute<{ due: number }>(sql`
    select count(*)::int as due from mediadock.requests
    where (${requests.landed_at} is null or ${requests.next_poll_at} is not null) and coalesce(${requests.next_poll_at}, ${requests.tracked_at}) <= ${at}
      and (${requests.next_poll_at} is not null or ${requests.tracked_at} <= ${at} - make_interval(secs => ${stuckAfterSeconds}))
    group by ${requests.key_name}`)
  const callsPerMinute = callsFor('reconciling', fetchRatePerMinute)
  return {
    due: rows.reduce((sum, { due }) => sum + due, 0),
    // Each key spends its own budget, so the longest line decides.
    minutes: Math.ceil(Math.max(0, ...rows.map(({ due }) => due / callsPerMinute))),
  }
}
