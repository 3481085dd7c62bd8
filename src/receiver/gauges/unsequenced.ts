import { sql } from '../../platform/postgres/drizzle.ts'
import type { Executor } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import type * as feeding from '../domain/feed-schema.ts'

/**
 * Returns the age in seconds of the oldest change that waits for its position; 0 if none waits. It takes the first of
 * the index, which is about the oldest.
 */
export async function unsequencedSeconds(tx: Executor, now: Date): Promise<number> {
  const rows = await tx.execute<RowOf<typeof feeding.changes, 'changed_at'>>(sql`
    select changed_at from mediadock.changes order by xid, id limit 1`)
  const [oldest] = rows
  return oldest === undefined ? 0 : Math.max(0, (now.getTime() - new Date(oldest.changed_at).getTime()) / 1000)
}
