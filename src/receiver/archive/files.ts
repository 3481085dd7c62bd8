import { randomUUID } from 'node:crypto'
import { sql } from '../../platform/postgres/drizzle.ts'
import { one, retryConflicts } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { later, postgresTime } from '../../platform/postgres/time.ts'
import { addChange } from '../feeding/add-change.ts'
import { copyLease, type Copy } from './copies.ts'

const now = postgresTime()

export type ArchivedFile = { sha256: string; bytes: number; contentType: string }

/** Registers a file to be stored. Returns its incarnation; undefined while the same file is being deleted. */
export async function wantFile(
  db: Database,
  { sha256, bytes, contentType }: ArchivedFile,
): Promise<string | undefined> {
  const rows = await retryConflicts(() =>
    // Longer than storing a file may take until `endCopy`. After that it is checked whether a copy refers to the file.
    db.execute<{ wanted: string | null }>(sql`
      with wanted as (
        insert into mediadock.archived_files as f (sha256, bytes, content_type, incarnation, look_at)
        values (${sha256}, ${bytes}::bigint, ${contentType}, ${randomUUID()}::uuid, ${later(now, 900)})
        on conflict (sha256) do update set look_at = excluded.look_at where f.removing_at is null
        returning f.incarnation
      )
      select (select incarnation from wanted) as wanted`),
  )
  return one(rows, `registering the file ${sha256}`).wanted ?? undefined
}

/** Schedules a check of a file that may be stored without a reference, even if its row is gone. */
export async function doubtFile(db: Database, { sha256, bytes, contentType }: ArchivedFile): Promise<void> {
  await retryConflicts(() =>
    db.execute(sql`
      insert into mediadock.archived_files (sha256, bytes, content_type, incarnation, look_at)
      values (${sha256}, ${bytes}::bigint, ${contentType}, ${randomUUID()}::uuid, ${now})
      on conflict (sha256) do update set look_at = excluded.look_at`),
  )
}

export type Stored = ArchivedFile & { incarnation: string; archivedUrl: string; hasThumbnail: boolean }

/**
 * Ends a copy whose file is stored: writes the columns of its media, and a change for the feed. Returns false if the
 * claim was lost, the media was removed, or the file was deleted meanwhile, even if it was registered again.
 */
export async function endCopy(db: Database, copy: Copy, file: Stored): Promise<boolean> {
  const statement = sql`
    with request as materialized (
      select request_id, status, media_complete from mediadock.requests
      where request_id = ${copy.request_id}::uuid for update
    ),
    mine as materialized (
      select 1 from request, mediadock.media_copies c where ${copyLease.isHeld(copy)} for update of c
    ),
    filed as (
      update mediadock.archived_files f set stored_at = coalesce(f.stored_at, ${now}), look_at = null,
        has_thumbnail = f.has_thumbnail or ${file.hasThumbnail}::boolean
      where f.sha256 = ${file.sha256} and f.incarnation = ${file.incarnation}::uuid and f.removing_at is null
        and exists (select from mine)
      returning f.sha256
    ),
    ended as (
      update mediadock.media_copies c set ${copyLease.end}, state = 'archived', sha256 = filed.sha256,
        fault = null, trouble = null, ended_at = ${now}
      from filed where ${copyLease.isHeld(copy)}
      returning c.request_id, c.kind, c.position, c.url, c.sha256
    ),
    written as (
      update mediadock.media m set archived_url = ${file.archivedUrl}, bytes = ${file.bytes}::bigint,
        content_type = ${file.contentType}, sha256 = ended.sha256, archived_at = ${now}, archive_error = null
      from ended
      where (m.request_id, m.kind, m.position, m.url) = (ended.request_id, ended.kind, ended.position, ended.url)
      returning m.request_id
    ),
    changed as (${addChange(now, sql`request where exists (select from written)`)})
    select count(*)::int as ended from ended`
  const rows = await retryConflicts(() => db.execute<{ ended: number }>(statement))
  return one(rows, `archiving a media of ${copy.request_id}`).ended === 1
}
