import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { feedStatusNames } from '../domain/feed-schema.ts'

const names = sql.raw(feedStatusNames.map((name) => `'${name}'`).join(', '))

/**
 * SQL: inserts one row of `changes` for all requests of `from`, with the status of each and whether its media are
 * complete. Inserts nothing if `from` is empty. The sequencer gives committed changes their positions in the feed.
 */
export const addChange = (now: SQL, from: SQL): SQL => sql`
      insert into mediadock.changes (changed_at, request_ids, statuses, media_complete)
      select ${now}, array_agg(request_id), array_agg(array_position(array[${names}], status)::smallint),
        array_agg(media_complete)
      from ${from} having count(*) > 0`
