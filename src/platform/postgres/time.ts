import { sql, type SQL } from './drizzle.ts'
import { one } from './errors.ts'
import type { Executor } from './postgres.ts'

/**
 * The time that replicas share, as an SQL expression: Postgres's clock. One replica writes due times, leases and
 * budgets, and another reads them, so all must use one clock. The host's clock is only for decisions about this host,
 * such as the age of a signature. For pauses within the process use performance.now().
 */
export type SharedTime = () => SQL

/** Postgres's time at the start of the statement. */
export const postgresTime: SharedTime = () => sql`now()`

/** For tests: the time of their own clock. */
export function timeOf(clock: () => Date): SharedTime {
  return () => sql`${clock().toISOString()}::timestamptz`
}

/** The time this many seconds after `now`, or before it if negative. */
export function later(now: SQL, seconds: number | SQL): SQL {
  return sql`${now} + make_interval(secs => ${seconds}::float8)`
}

/** Reads the shared time, for decisions in the code about other replicas' rows. */
export async function readTime(db: Executor, time: SharedTime = postgresTime): Promise<Date> {
  const rows = await db.execute<{ now: string }>(sql`select ${time()} as now`)
  return new Date(one(rows, 'asking for the time').now)
}
