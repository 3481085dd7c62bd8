import { statementRows } from '../../platform/postgres/at-most.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one, retryConflicts } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { later, postgresTime } from '../../platform/postgres/time.ts'
import type { LinkLives } from '../domain/keys.ts'

const now = postgresTime()

/**
 * Reads on in the feed, and queues copies for media of complete results without a copy of their present link. So
 * landing writes nothing for the archive, and results that landed while it was off are found too. One replica at a time
 * does this. A media whose link has changed loses its copy and gets another.
 */
export async function followFeed(db: Database, lives: LinkLives = {}) {
  const statement = sql`
    with begin as (select position from mediadock.archive_progress limit 1 for update skip locked),
    page as (
      select e.position, e.request_id from mediadock.feed_entries e
      where e.position > (select position from begin) order by e.position limit ${statementRows}
    ),
    wanted as (
      select m.*, r.expires_at from (select distinct request_id from page) p
      join lateral (
        select ${endOfLinks(lives)} as expires_at from mediadock.requests r
        where r.request_id = p.request_id and r.status = 'COMPLETED' and r.media_complete limit 1
      ) r on true
      join lateral (
        select m.request_id, m.kind, m.position, m.url from mediadock.media m
          where m.request_id = p.request_id offset 0
      ) m on true
    ),
    -- One look-up per row: with outdated statistics the planner would read the whole table for a page of changes.
    replaced as (
      select c.sha256 from wanted join lateral (
        select c.sha256, c.url from mediadock.media_copies c
        where (c.request_id, c.kind, c.position) = (wanted.request_id, wanted.kind, wanted.position) limit 1
      ) c on c.url <> wanted.url and c.sha256 is not null
    ),
    queued as (
      insert into mediadock.media_copies as c (request_id, kind, position, url, state, due_at, expires_at)
      select request_id, kind, position, url, 'waiting', ${now}, expires_at from wanted
      order by request_id, kind, position
      on conflict (request_id, kind, position) do update set url = excluded.url,
        state = 'waiting', due_at = excluded.due_at, expires_at = excluded.expires_at,
        claims = c.claims + 1, unended = 0, tries = 0, fault = null, trouble = null, sha256 = null, ended_at = null
      where c.url <> excluded.url and c.state <> 'removed'
      returning c.request_id, c.kind, c.position, c.claims
    ),
    taken_back as (
      update mediadock.media m set archived_url = null, bytes = null, content_type = null,
        sha256 = null, archived_at = null, archive_error = null
      where m.ctid = any(array(
        select found.ctid from queued, lateral (
          select m.ctid from mediadock.media m
          where (m.request_id, m.kind, m.position) = (queued.request_id, queued.kind, queued.position) limit 1
        ) found where queued.claims > 0))
    ),
    doubted as (
      update mediadock.archived_files set look_at = ${now}
      where sha256 = any(array(select sha256 from replaced))
    ),
    moved as (
      update mediadock.archive_progress set position = (select max(position) from page)
        where exists (select from page)
    )
    select (select count(*)::int from page) as changes, (select count(*)::int from queued) as queued`
  const rows = await retryConflicts(() => db.execute<{ changes: number; queued: number }>(statement))
  const followed = one(rows, 'queueing media for the archive')
  return { ...followed, more: followed.changes === statementRows }
}

/** SQL: when links end, counted from the end of the job; null without a promise. */
function endOfLinks(lives: LinkLives): SQL {
  const seconds = sql`(${JSON.stringify(lives)}::jsonb ->> coalesce(r.source_name, ''))::float8`
  return later(sql`least(r.completed_at, r.landed_at)`, seconds)
}
