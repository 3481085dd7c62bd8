import { statementRows } from '../../platform/postgres/at-most.ts'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one, untilNotGivingWay } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { later, postgresTime } from '../../platform/postgres/time.ts'
import * as feeding from '../domain/feed-schema.ts'
import type { LinkLives } from '../domain/keys.ts'
import * as schema from '../domain/schema.ts'
import * as archive from './archive-schema.ts'

const c = columnsOf(archive.mediaCopies, 'c')
const copies = columnsOf(archive.mediaCopies)
const e = columnsOf(feeding.feedEntries, 'e')
const files = columnsOf(archive.archivedFiles)
const m = columnsOf(schema.media, 'm')
const media = columnsOf(schema.media)
const progress = columnsOf(archive.archiveProgress)
const r = columnsOf(schema.requests, 'r')
const now = postgresTime()

/**
 * Reads on in the feed, and queues copies for media of complete results without a copy of their present link. So
 * landing writes nothing for the archive, and results that landed while it was off are found too. One replica at a time
 * does this. A media whose link has changed loses its copy and gets another.
 */
export async function followFeed(db: Database, lives: LinkLives = {}) {
  const statement = sql`
    with begin as (select ${progress.position} from mediadock.archive_progress limit 1 for update skip locked),
    page as (
      select ${list(e, 'position', 'request_id')} from mediadock.feed_entries e
      where ${e.position} > (select position from begin) order by ${e.position} limit ${statementRows}
    ),
    wanted as (
      select m.*, r.expires_at from (select distinct request_id from page) p
      join lateral (
        select ${endOfLinks(lives)} as expires_at from mediadock.requests r
        where ${r.request_id} = p.request_id and ${r.status} = 'COMPLETED' and ${r.media_complete} limit 1
      ) r on true
      join lateral (
        select ${list(m, 'request_id', 'kind', 'position', 'url')} from mediadock.media m
          where ${m.request_id} = p.request_id offset 0
      ) m on true
    ),
    -- One look-up per row: with outdated statistics the planner would read the whole table for a page of changes.
    replaced as (
      select c.sha256 from wanted join lateral (
        select ${list(c, 'sha256', 'url')} from mediadock.media_copies c
        where (${c.request_id}, ${c.kind}, ${c.position}) = (wanted.request_id, wanted.kind, wanted.position) limit 1
      ) c on c.url <> wanted.url and c.sha256 is not null
    ),
    queued as (
      insert into mediadock.media_copies as c
        (${list(copies, 'request_id', 'kind', 'position', 'url', 'state', 'due_at', 'expires_at')})
      select request_id, kind, position, url, 'waiting', ${now}, expires_at from wanted
      order by request_id, kind, position
      on conflict (request_id, kind, position) do update set ${copies.url} = excluded.url,
        ${copies.state} = 'waiting', ${copies.due_at} = excluded.due_at, ${copies.expires_at} = excluded.expires_at,
        ${copies.claims} = ${c.claims} + 1, ${copies.unended} = 0, ${copies.tries} = 0, ${copies.fault} = null,
          ${copies.trouble} = null, ${copies.sha256} = null, ${copies.ended_at} = null
      where ${c.url} <> excluded.url and ${c.state} <> 'removed'
      returning ${list(c, 'request_id', 'kind', 'position', 'claims')}
    ),
    taken_back as (
      update mediadock.media m set ${media.archived_url} = null, ${media.bytes} = null, ${media.content_type} = null,
        ${media.sha256} = null, ${media.archived_at} = null, ${media.archive_error} = null
      where m.ctid = any(array(
        select found.ctid from queued, lateral (
          select m.ctid from mediadock.media m
          where (${m.request_id}, ${m.kind}, ${m.position}) = (queued.request_id, queued.kind, queued.position) limit 1
        ) found where queued.claims > 0))
    ),
    doubted as (
      update mediadock.archived_files set ${files.look_at} = ${now}
      where ${files.sha256} = any(array(select sha256 from replaced))
    ),
    moved as (
      update mediadock.archive_progress set ${progress.position} = (select max(position) from page)
        where exists (select from page)
    )
    select (select count(*)::int from page) as changes, (select count(*)::int from queued) as queued`
  const rows = await untilNotGivingWay(() => db.execute<{ changes: number; queued: number }>(statement))
  const followed = one(rows, 'queueing media for the archive')
  return { ...followed, more: followed.changes === statementRows }
}

/**
 * SQL: when links end; null without a promise. Links last from the end of the job, also those that are fetched later.
 */
function endOfLinks(lives: LinkLives): SQL {
  const seconds = sql`(${JSON.stringify(lives)}::jsonb ->> coalesce(${r.source_name}, ''))::float8`
  return later(sql`least(${r.completed_at}, ${r.landed_at})`, seconds)
}
