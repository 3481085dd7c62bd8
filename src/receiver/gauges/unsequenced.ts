import type { Executor } from '../../platform/postgres/postgres.ts'
import { changes } from '../domain/feed-schema.ts'

/**
 * Returns the age in seconds of the oldest change that waits for its position; 0 if none waits. It takes the first of
 * the index, which is about the oldest.
 */
export async function unsequencedSeconds(tx: Executor, now: Date): Promise<number> {
  const { xid, id, changed_at } = changes
  const [oldest] = await tx.select({ changed_at }).from(changes).orderBy(xid, id).limit(1)
  return oldest === undefined ? 0 : Math.max(0, (now.getTime() - Date.parse(oldest.changed_at)) / 1000)
}
