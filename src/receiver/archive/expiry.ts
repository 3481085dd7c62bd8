import { and, eq, lt } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { mediaCopies } from './archive-schema.ts'
import { removeMedia } from './removal.ts'

const maxMedia = 100

/**
 * Removes archived media older than the cutoff, a few requests at a time. All media of a request are removed together,
 * since they were archived together. Returns the number of requests.
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
    // Stops if no media could be removed, since the next round would find the same ones.
    if (!isAtWork) break
  }
  return expired
}
