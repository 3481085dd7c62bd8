import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import * as archive from './archive-schema.ts'
import type { ArchiveStore } from './store.ts'

const c = columnsOf(archive.mediaCopies, 'c')
const f = columnsOf(archive.archivedFiles, 'f')
const files = columnsOf(archive.archivedFiles)

type Doomed = RowOf<typeof archive.archivedFiles, 'sha256' | 'content_type' | 'incarnation'>

const maxFiles = 50
/** What could not be deleted is tried again after this. */
const againSeconds = 60

/**
 * Deletes files that nothing refers to any more: looks at those which somebody doubted, marks them, so that
 * nothing new can refer to them, deletes them and then their rows. A file that was changed since this
 * statement began to look (`xmin`) is left for the next time. Before each file, and before its row goes, it
 * is still to be ours: where we took so long that another has gone on with it, the file may have been stored anew.
 */
export async function removeUnreferred(
  db: Database,
  store: ArchiveStore,
  now: Date,
): Promise<{ removed: number; more: boolean }> {
  const began = performance.now()
  const againAt = () => new Date(now.getTime() + performance.now() - began + againSeconds * 1000).toISOString()
  const at = sql`${now.toISOString()}::timestamptz`
  const marked = againAt()
  const rows = await db.execute<Doomed>(sql`
    with looked as materialized (
      select due.*, c.one is not null as is_referred from (
        select ${list(f, 'sha256')}, f.xmin::text as version from mediadock.archived_files f where ${f.look_at} <= ${at} order by ${f.look_at} limit ${maxFiles}
      ) due
      left join lateral (select 1 as one from mediadock.media_copies c where ${c.sha256} = due.sha256 limit 1) c on true
    ),
    kept as (
      update mediadock.archived_files f set ${files.look_at} = null from looked
      where ${f.sha256} = looked.sha256 and f.xmin::text = looked.version and is_referred and ${f.removing_at} is null
    )
    update mediadock.archived_files f set ${files.removing_at} = ${at}, ${files.look_at} = ${marked}::timestamptz from looked
    where ${f.sha256} = looked.sha256 and f.xmin::text = looked.version and not is_referred
    returning ${list(f, 'sha256', 'content_type', 'incarnation')}`)
  const doomed = rows
  for (const { sha256, content_type, incarnation } of doomed) {
    const isOurs = (until: string) =>
      sql`${f.sha256} = ${sha256} and ${f.incarnation} = ${incarnation}::uuid and ${f.look_at} = ${until}::timestamptz and ${f.removing_at} is not null`
    const until = againAt()
    const held = await db.execute(
      sql`update mediadock.archived_files f set ${files.look_at} = ${until}::timestamptz where ${isOurs(marked)} returning ${f.sha256}`,
    )
    if (held.length === 0) continue
    await store.remove({ sha256, contentType: content_type })
    await db.execute(sql`delete from mediadock.archived_files f where ${isOurs(until)}`)
  }
  return { removed: doomed.length, more: doomed.length === maxFiles }
}
