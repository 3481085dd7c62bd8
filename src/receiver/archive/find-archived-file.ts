import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { readWithin } from '../queries/deadline.ts'
import * as archive from './archive-schema.ts'

const files = columnsOf(archive.archivedFiles)

type FileRow = RowOf<typeof archive.archivedFiles, 'sha256' | 'content_type' | 'has_thumbnail' | 'bytes'>

export type FoundFile = Omit<FileRow, 'bytes'> & { bytes: number }

/** A file of the archive by its content; undefined where it is not stored, or is being deleted. */
export async function findArchivedFile(db: Database, sha256: string): Promise<FoundFile | undefined> {
  const [row] = await readWithin(db, (tx) =>
    tx.execute<FileRow>(sql`
      select ${list(files, 'sha256', 'content_type', 'has_thumbnail', 'bytes')} from mediadock.archived_files
      where ${files.sha256} = ${sha256} and ${files.stored_at} is not null and ${files.removing_at} is null`),
  )
  return row && { ...row, bytes: Number(row.bytes) }
}
