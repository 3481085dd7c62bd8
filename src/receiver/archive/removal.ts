import { and, inArray, isNotNull, or, sql, eq, lt } from '../../platform/postgres/drizzle.ts'
import { one, retryConflicts } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { postgresTime, later } from '../../platform/postgres/time.ts'
import { maxOutputItems } from '../../wire/schemas.ts'
import { addChange } from '../feeding/add-change.ts'
import { archivedFiles, mediaCopies } from './archive-schema.ts'
import type { ArchiveStore } from './store.ts'

const now = postgresTime()

/** The `archive_error` of media that an operator removed, or that expired. They are never copied again. */
export type RemovalMark = 'removed' | 'expired'

export type Removal = {
  known: boolean
  /** How many of its media were marked and will never be archived again. */
  media: number
  /** The files of its copies. A file is deleted unless another media refers to it. */
  files: string[]
}

/**
 * Removes the archived copies of the media of a request. One statement empties the columns of the copies and writes the
 * mark to `archive_error`, so the media are never copied again. A receiver with the archive then deletes the files that
 * no other media uses, within seconds (`removeUnreferred`).
 */
export async function removeMedia(db: Database, requestId: string, mark: RemovalMark = 'removed'): Promise<Removal> {
  const statement = sql`
    with request as materialized (
      select request_id, status, media_complete, landed_at from mediadock.requests
      where request_id = ${requestId}::uuid for update
    ),
    before as materialized (
      -- Locks the request's row first. Copies may exist although the request's row was deleted.
      select c.request_id, c.kind, c.position, c.url, c.sha256 from mediadock.media_copies c
      where c.request_id = ${requestId}::uuid and (select count(*) from request) >= 0
      order by 1, 2, 3 for update of c
    ),
    removed as (
      insert into mediadock.media_copies as c (request_id, kind, position, url, state, due_at, ended_at)
      select distinct on (kind, position) request_id, kind, position, url, 'removed', ${now}, ${now}
      from (
        select request_id, kind, position, url from request join mediadock.media using (request_id)
        -- An overruled result has lost its media; the copies of those media remain until now.
        union all select request_id, kind, position, url from before
      ) as known
      order by kind, position
      on conflict (request_id, kind, position) do update set state = 'removed', ended_at = ${now},
        claims = c.claims + 1, sha256 = null, fault = null, trouble = null
    ),
    marked as (
      update mediadock.media m set archived_url = null, bytes = null, content_type = null,
        sha256 = null, archived_at = null, archive_error = ${mark}
      from request where m.request_id = request.request_id and m.archive_error is distinct from ${mark}
      returning m.request_id
    ),
    doubted as (
      update mediadock.archived_files f set look_at = ${now}
      where f.sha256 = any(array(select sha256 from before)) returning f.sha256
    ),
    changed as (${addChange(now, sql`request where landed_at is not null and exists (select from marked)`)})
    select exists (select from request) as known, (select count(*)::int from marked) as media,
      array(select sha256 from before where sha256 is not null) as files, array(select sha256 from doubted) as doubted`
  const rows = await retryConflicts(() => db.execute<Removal & { doubted: string[] }>(statement))
  const { doubted, ...removal } = one(rows, `removing the media of ${requestId}`)
  // A file stored while this statement waited for the request's lock was not visible to it.
  if (removal.files.some((file) => !doubted.includes(file)))
    await db.update(archivedFiles).set({ look_at: now }).where(inArray(archivedFiles.sha256, removal.files))
  return removal
}

/** Returns those of the files that are still to be checked or deleted. */
export async function stillThere(db: Database, sha256s: readonly string[]): Promise<string[]> {
  const { sha256, removing_at, look_at } = archivedFiles
  const rows = await db
    .select({ sha256 })
    .from(archivedFiles)
    .where(and(inArray(sha256, [...sha256s]), or(isNotNull(removing_at), sql`${look_at} <= ${now}`)))
  return rows.map((file) => file.sha256)
}

/** Removes all media of requests with media archived before the cutoff. Returns the number of requests. */
export async function expireMedia(db: Database, cutoff: Date, signal: AbortSignal): Promise<number> {
  let expired = 0
  while (!signal.aborted) {
    const { request_id, state, ended_at } = mediaCopies
    const rows = await db
      .select({ request_id })
      .from(mediaCopies)
      .where(and(eq(state, 'archived'), lt(ended_at, cutoff.toISOString())))
      .orderBy(ended_at)
      .limit(maxOutputItems)
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

type Doomed = RowOf<typeof archivedFiles, 'sha256' | 'content_type' | 'incarnation'> & { marked: string }

/** Deleting a file may take a second in a store, and all must be deleted within the lease of 60 s (`look_at`). */
const maxFiles = 50

/**
 * Deletes files without a reference. It marks doubted files without a reference, so that no copy can refer to them,
 * then deletes the files and their rows. A file whose row changed after the look (`xmin`) is left for the next round.
 * `look_at` is the lease: before each file and each row is deleted, it must have the value set here. Otherwise another
 * replica has taken over, and the file may have been stored anew.
 */
export async function removeUnreferred(
  db: Database,
  store: ArchiveStore,
  now = postgresTime(),
): Promise<{ removed: number; more: boolean }> {
  // The pause after a failed deletion.
  const again = later(now, 60)
  const doomed = await db.execute<Doomed>(sql`
    with looked as materialized (
      select due.*, c.one is not null as is_referred from (
        select f.sha256, f.xmin::text as version from mediadock.archived_files f
        where f.look_at <= ${now} order by f.look_at limit ${maxFiles}
      ) due
      left join lateral (
        select 1 as one from mediadock.media_copies c where c.sha256 = due.sha256 limit 1
      ) c on true
    ),
    kept as (
      update mediadock.archived_files f set look_at = null from looked
      where f.sha256 = looked.sha256 and f.xmin::text = looked.version and is_referred and f.removing_at is null
    )
    update mediadock.archived_files f set removing_at = ${now}, look_at = ${again} from looked
    where f.sha256 = looked.sha256 and f.xmin::text = looked.version and not is_referred
    returning f.sha256, f.content_type, f.incarnation, f.look_at::text as marked`)
  for (const { sha256, content_type, incarnation, marked } of doomed) {
    const isOurs = (until: string) =>
      sql`f.sha256 = ${sha256} and f.incarnation = ${incarnation}::uuid
        and f.look_at = ${until}::timestamptz and f.removing_at is not null`
    const [renewed] = await db.execute<{ until: string }>(sql`
      update mediadock.archived_files f set look_at = ${again} where ${isOurs(marked)}
      returning f.look_at::text as until`)
    if (!renewed) continue
    await store.remove({ sha256, contentType: content_type })
    await db.execute(sql`delete from mediadock.archived_files f where ${isOurs(renewed.until)}`)
  }
  return { removed: doomed.length, more: doomed.length === maxFiles }
}
