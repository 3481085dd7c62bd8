import { sql } from 'drizzle-orm'
import type { Database } from '../runtime/postgres.ts'
import { pruneExpiredKeys } from './idempotency.ts'

const batch = 1000

/** Removes what has had its time: expired Idempotency-Keys, counts of minutes long past. */
export async function runHousekeepingOnce({ db, clock }: { db: Database; clock: () => Date }): Promise<{ more: boolean }> {
  const now = clock()
  const keys = await pruneExpiredKeys(db, batch, now)
  const windows = await db.execute(sql`
    delete from provider.rate_windows where started_at < ${new Date(now.getTime() - 3_600_000).toISOString()} returning 1`)
  return { more: keys === batch || windows.length > batch }
}
