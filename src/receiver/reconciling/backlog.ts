import { sql } from 'drizzle-orm'
import { columnsOf } from '../../runtime/postgres/columns.ts'
import { answered, one } from '../../runtime/postgres/errors.ts'
import type { Executor } from '../../runtime/postgres/postgres.ts'
import type { Keys } from '../domain/keys.ts'
import * as schema from '../domain/schema.ts'
import { callsFor } from '../fetching/call-budget.ts'
import { isDue, isIncomplete, type StuckAfter } from './due.ts'

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
  const behind = await db.execute<{ incomplete: number }>(sql`
    select count(*)::int as incomplete from mediadock.requests where ${isIncomplete}`)
  const callsPerMinute = callsFor('reconciling', fetchRatePerMinute)
  return {
    due: rows.reduce((sum, { due }) => sum + due, 0),
    // Each key spends its own budget, so the longest line decides.
    minutes: Math.ceil(Math.max(0, ...rows.map(({ due }) => due / callsPerMinute))),
    incomplete: one(behind, 'counting what is not complete').incomplete,
    per_minute: keys.all.filter((key) => !key.retired && key.apiKey !== undefined).length * callsPerMinute,
  }
}
