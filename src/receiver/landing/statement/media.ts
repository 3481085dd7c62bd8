import { columnsOf, list } from '../../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../../platform/postgres/drizzle.ts'
import * as schema from '../../domain/schema.ts'

const media = columnsOf(schema.media)
const m = columnsOf(schema.media, 'm')

/** `media_written`: the media of each written request. Reads `written` and `item`. */
export function writeMedia(): SQL {
  return sql`
    media_written as (
      insert into mediadock.media as m (${list(media, 'request_id', 'kind', 'position', 'url', 'original_url', 'width', 'height', 'duration_seconds')})
      select written.request_id, o.kind, o.position, o.url, o.original_url, o.width, o.height, o.duration_seconds
      from written join item using (request_id), jsonb_to_recordset(item.media) as o (
        kind text, position integer, url text, original_url text, width integer, height integer, duration_seconds double precision)
      on conflict (request_id, kind, position) do update set url = excluded.url, original_url = excluded.original_url,
        width = excluded.width, height = excluded.height, duration_seconds = excluded.duration_seconds
      returning ${list(m, 'kind', 'position', 'url', 'original_url', 'width', 'height', 'duration_seconds')}
    )`
}

/** `media_overruled`: those that a written request had before, and has no longer. Reads `written` and `item`. */
export function removeOverruledMedia(): SQL {
  return sql`
    media_overruled as (
      delete from mediadock.media m using written join item using (request_id)
      where ${m.request_id} = any(array[written.request_id]) and not exists (
        select from jsonb_to_recordset(item.media) as o (kind text, position integer) where o.kind = ${m.kind} and o.position = ${m.position})
      returning ${list(m, 'kind', 'position', 'url')}
    )`
}
