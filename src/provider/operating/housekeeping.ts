import type { Database } from '../../runtime/postgres/postgres.ts'
import { pruneIdleWindows } from '../accounts/rate-limit.ts'
import { pruneExpiredKeys } from '../submit/idempotency.ts'

/** Rows that one statement removes. */
const batch = 1000

/** Removes what has had its time: expired Idempotency-Keys, windows in which nobody has called for long. */
export async function runHousekeepingOnce({ db, clock }: { db: Database; clock: () => Date }): Promise<{ more: boolean }> {
  const now = clock()
  const keys = await pruneExpiredKeys(db, batch, now)
  const windows = await pruneIdleWindows(db, batch, now)
  return { more: keys === batch || windows === batch }
}
