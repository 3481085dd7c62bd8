import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { later, postgresTime } from '../../platform/postgres/time.ts'
import type { archivedFiles } from './archive-schema.ts'
import type { ArchiveStore } from './store.ts'

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
