import { statementRows } from '../../platform/postgres/at-most.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import { pruneIdleWindows } from '../accounts/rate-limit.ts'
import { removeLeftReferences } from '../references/references.ts'
import { pruneExpiredKeys } from '../submit/idempotency.ts'

type HousekeepingDeps = {
  db: Database
  time: SharedTime
  /** Files have the host's time. */
  hostClock: () => Date
  mediaDir: string
}

/** Removes expired Idempotency-Keys, idle rate windows, and files of references that dead processes left. */
export async function runHousekeepingOnce({ db, time, hostClock, mediaDir }: HousekeepingDeps) {
  const now = time()
  await removeLeftReferences(mediaDir, hostClock().getTime())
  const keys = await pruneExpiredKeys(db, statementRows, now)
  const windows = await pruneIdleWindows(db, statementRows, now)
  return { more: keys === statementRows || windows === statementRows }
}
