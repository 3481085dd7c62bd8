import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import * as schema from '../domain/schema.ts'

const r = columnsOf(schema.requests, 'r')

/** Counts, among the latest requests, those that no service had tracked before their webhook arrived. */
export async function countUntracked(db: Database): Promise<{ untracked: number; requests: number }> {
  // A thousand distinguish a service that never tracks from one that is sometimes late.
  const rows = await db.execute<{ untracked: number; requests: number }>(sql`
    select (count(*) filter (where key_source = 'landed' and landed_at = tracked_at))::int as untracked,
      count(*)::int as requests
    from (
      select ${list(r, 'key_source', 'landed_at', 'tracked_at')} from mediadock.requests r
      order by ${r.tracked_at} desc nulls last, ${r.request_id} desc nulls last limit 1000
    ) as latest`)
  return one(rows, 'counting untracked requests')
}
