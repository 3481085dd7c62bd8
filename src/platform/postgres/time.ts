import { sql, type SQL } from './drizzle.ts'
import { one } from './errors.ts'
import type { Executor } from './postgres.ts'

/**
 * The time that replicas share, as an expression of SQL. Due times, leases and budgets are written by one replica and
 * read by another, so all of them go by one clock: Postgres's. The host's clock decides only what concerns this host
 * alone, such as whether a webhook was signed in time; for pauses within the process use performance.now().
 */
export type SharedTime = () => SQL

/** Postgres's own: the moment at which the statement began. */
export const postgresTime: SharedTime = () => sql`now()`

/** For tests that decide what time it is: the time of their clock, as a literal. */
export function timeOf(clock: () => Date): SharedTime {
  return () => sql`${clock().toISOString()}::timestamptz`
}

/** So many seconds after `now`; before it, if negative. */
export function later(now: SQL, seconds: number | SQL): SQL {
  return sql`${now} + make_interval(secs => ${seconds}::float8)`
}

/** Asks for the shared time, for decisions in the code about what other replicas wrote. */
export async function readTime(db: Executor, time: SharedTime = postgresTime): Promise<Date> {
  const rows = await db.execute<{ now: string }>(sql`select ${time()} as now`)
  return new Date(one(rows, 'asking for the time').now)
}
