import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { feedStatuses } from '../domain/feed-schema.ts'

const { COMPLETED, FAILED, CANCELED, REFUSED } = feedStatuses
const statusNumber = sql.raw(
  `(case status when 'COMPLETED' then ${COMPLETED} when 'FAILED' then ${FAILED} when 'REFUSED' then ${REFUSED}
    else ${CANCELED} end)::smallint`,
)

/**
 * SQL: inserts one row of `changes` for all requests of `from`, with the status of each and whether its media are
 * complete. Inserts nothing if `from` is empty. The sequencer gives committed changes their positions in the feed.
 */
export function addChange(now: SQL, from: SQL): SQL {
  return sql`
    insert into mediadock.changes (changed_at, request_ids, statuses, media_complete)
    select ${now}, array_agg(request_id), array_agg(${statusNumber}), array_agg(media_complete)
    from ${from} having count(*) > 0`
}
