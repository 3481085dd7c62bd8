import { and, eq, lt } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { mediaCopies } from './archive-schema.ts'
import { removeMedia } from './removal.ts'

const maxMedia = 100

/**
 * Removes archived media that have been kept for as long as they are to be, those of a few requests at a time:
 * of a request all, since they were archived together. Answers of how many requests.
 */
export async function expireMedia(db: Database, cutoff: Date, signal: AbortSignal): Promise<number> {
  let expired = 0
  while (!signal.aborted) {
    const { request_id, state, ended_at } = mediaCopies
    const rows = await db
      .select({ request_id })
      .from(mediaCopies)
      .where(and(eq(state, 'archived'), lt(ended_at, cutoff.toISOString())))
      .orderBy(ended_at)
      .limit(maxMedia)
    const requestIds = new Set(rows.map(({ request_id: id }) => id))
    if (requestIds.size === 0) break
    let isAtWork = false
    for (const requestId of requestIds) {
      if (signal.aborted) break
      const { known, files } = await removeMedia(db, requestId, 'expired')
      if (known) expired += 1
      isAtWork ||= known || files.length > 0
    }
    // What cannot be removed would be found again and again.
    if (!isAtWork) break
  }
  return expired
}
