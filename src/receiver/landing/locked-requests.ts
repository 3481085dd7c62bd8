import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'

/**
 * Returns the requests among these whose rows another transaction has locked at this moment, including rows that it
 * inserted and has not committed. Takes about a millisecond for each of those. held_requests() is made by the migration
 * 0002_held_requests.
 */
export async function lockedRequests(db: Database, requestIds: readonly string[]): Promise<Set<string>> {
  const rows = await db.execute<{ id: string }>(
    sql`select id from mediadock.held_requests(${sql.param([...requestIds])}::uuid[]) as id`,
  )
  return new Set(rows.map(({ id }) => id))
}
