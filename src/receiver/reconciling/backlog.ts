import { columnsOf } from '../../runtime/postgres/columns.ts'
import { sql } from '../../runtime/postgres/drizzle.ts'
import { answered, one } from '../../runtime/postgres/errors.ts'
import type { Executor } from '../../runtime/postgres/postgres.ts'
import * as fetching from '../domain/budgets-schema.ts'
import type { Keys } from '../domain/keys.ts'
import * as schema from '../domain/schema.ts'
import { callsFor } from '../fetching/call-budget.ts'
import { isDue, isHeldUp, isIncomplete, type StuckAfter } from './due.ts'

const b = columnsOf(fetching.callBudgets, 'b')
const requests = columnsOf(schema.requests)

export type Backlog = {
  /** Requests whose next call to the provider is due. */
  due: number
  /** How long asking for all of them takes within the budget of the keys; 0 when nothing is due. */
  minutes: number
  /** Results that are behind: landed, and not complete yet. */
  incomplete: number
  /** How many of them can be completed in a minute within the budget of the keys, if landing needs no more than its share. */
  per_minute: number
}

export type BacklogOptions = StuckAfter & { fetchRatePerMinute: number; keys: Keys }

/** What the reconciler still has to ask for, and how long that will take. */
export async function readBacklog(db: Executor, { now, stuckAfterSeconds, fetchRatePerMinute, keys }: BacklogOptions): Promise<Backlog> {
  const rows = await db.execute<{ due: number }>(sql`
    select count(*)::int as due from mediadock.requests
    where ${isDue({ now, stuckAfterSeconds })}
    group by ${requests.key_name}`)
  answered(rows, 'reading the backlog')
  const budgetOf = sql`(select ${b.key_name}, ${b.recovered_at} from mediadock.call_budgets b where ${b.recovered_at} is not null
    union all select '', max(${b.recovered_at}) from mediadock.call_budgets b)`
  // As a run claims them: before their time, since what held them up is over.
  const held = await db.execute<{ due: number }>(sql`
    select sum(of_line.due)::int as due from ${budgetOf} as line (key_name, recovered_at) cross join lateral (
      select count(*) as due from mediadock.requests
      where coalesce(${requests.key_name}, '') = line.key_name and ${isHeldUp(sql`line.recovered_at`)} and not ${isDue({ now, stuckAfterSeconds })}
    ) as of_line group by line.key_name having sum(of_line.due) > 0`)
  const all = [...rows, ...answered(held, 'reading what was held up')]
  const behind = await db.execute<{ incomplete: number }>(sql`
    select count(*)::int as incomplete from mediadock.requests where ${isIncomplete}`)
  const callsPerMinute = callsFor('reconciling', fetchRatePerMinute)
  return {
    due: all.reduce((sum, { due }) => sum + due, 0),
    // Each key spends its own budget, so the longest line decides.
    minutes: Math.ceil(Math.max(0, ...all.map(({ due }) => due / callsPerMinute))),
    incomplete: one(behind, 'counting what is not complete').incomplete,
    per_minute: keys.all.filter((key) => !key.retired && key.apiKey !== undefined).length * callsPerMinute,
  }
}
