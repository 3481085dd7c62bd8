import { sql } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { requests } from '../domain/schema.ts'
import { newestFirst } from './page.ts'

/** Counts, among the latest requests, those that no service had tracked before their webhook arrived. */
export async function countUntracked(db: Database): Promise<{ untracked: number; requests: number }> {
  const { request_id, key_source, landed_at, tracked_at } = requests
  const latest = db
    .select({ key_source, landed_at, tracked_at })
    .from(requests)
    .orderBy(newestFirst({ at: tracked_at, id: request_id }))
    // Enough to distinguish a service that never tracks from one that is sometimes late.
    .limit(1000)
    .as('latest')
  const isUntracked = sql`${latest.key_source} = 'landed' and ${latest.landed_at} = ${latest.tracked_at}`
  const rows = await db
    .select({
      untracked: sql<number>`(count(*) filter (where ${isUntracked}))::int`,
      requests: sql<number>`count(*)::int`,
    })
    .from(latest)
  return one(rows, 'counting untracked requests')
}
