import { columnsOf, list } from '../../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../../platform/postgres/drizzle.ts'
import { changes as table, feedStatuses } from '../../domain/feed-schema.ts'
import { writtenThatLanded } from './verdicts.ts'

const changes = columnsOf(table)
const { COMPLETED, FAILED, CANCELED, REFUSED } = feedStatuses
const status = sql.raw(
  `case status when 'COMPLETED' then ${COMPLETED} when 'FAILED' then ${FAILED} when 'REFUSED' then ${REFUSED} else ${CANCELED} end`,
)

/**
 * `changed`: what landed, for the feed, in one row for the whole statement; it
 * gets its positions once this has been committed (sequencer.ts). Its id is drawn
 * while the rows of its requests are locked, so that the changes of a request are in order.
 * Reads `written` and `verdict`.
 */
export function noteChanges(at: SQL): SQL {
  return sql`changed as (${writeChange(at, writtenThatLanded)})`
}

/** The row of `changes` for what `from` has: requests with their status and whether their media are complete. None where it has none. */
export function writeChange(at: SQL, from: SQL): SQL {
  return sql`
    insert into mediadock.changes (${list(changes, 'changed_at', 'request_ids', 'statuses', 'media_complete')})
    select ${at}, array_agg(request_id), array_agg((${status})::smallint), array_agg(media_complete)
    from ${from} having count(*) > 0`
}
