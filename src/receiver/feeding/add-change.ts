import { sql, type SQL } from '../../platform/postgres/drizzle.ts'

/**
 * SQL: inserts one row of `changes` for all requests of `from`, with the status of each and whether its media are
 * complete. Inserts nothing if `from` is empty. The sequencer gives committed changes their positions in the feed.
 */
export const addChange = (now: SQL, from: SQL): SQL => sql`
      insert into mediadock.changes (changed_at, request_ids, statuses, media_complete)
      select ${now}, array_agg(request_id), array_agg((case status when 'COMPLETED' then 1 when 'FAILED' then 2
        when 'REFUSED' then 4 else 3 end)::smallint), array_agg(media_complete)
      from ${from} having count(*) > 0`
