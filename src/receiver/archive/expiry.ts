import { columnsOf } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import * as archive from './archive-schema.ts'
import { removeMedia } from './removal.ts'

const copies = columnsOf(archive.mediaCopies)

const maxMedia = 100

/**
 * Removes archived media that have been kept for as long as they are to be, those of a few requests at a time:
 * of a request all, since they were archived together. Answers of how many requests.
 */
export async function expireMedia(db: Database, cutoff: Date, signal: AbortSignal): Promise<number> {
  let expired = 0
  while (!signal.aborted) {
    const rows = await db.execute<RowOf<typeof archive.mediaCopies, 'request_id'>>(sql`
      select ${copies.request_id} from mediadock.media_copies
      where ${copies.state} = 'archived' and ${copies.ended_at} < ${cutoff.toISOString()}::timestamptz
      order by ${copies.ended_at} limit ${maxMedia}`)
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
