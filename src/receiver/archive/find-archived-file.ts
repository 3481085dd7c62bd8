import { and, eq, isNotNull, isNull } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { readWithin } from '../queries/deadline.ts'
import { archivedFiles } from './archive-schema.ts'

const { sha256, content_type, has_thumbnail, bytes } = archivedFiles
const shown = { sha256, content_type, has_thumbnail, bytes }

export type FoundFile = Pick<typeof archivedFiles.$inferSelect, keyof typeof shown>

/** Finds a file by its content; undefined if it is not stored or is being deleted. */
export async function findArchivedFile(db: Database, content: string): Promise<FoundFile | undefined> {
  const isThere = and(isNotNull(archivedFiles.stored_at), isNull(archivedFiles.removing_at))
  const [file] = await readWithin(db, async (tx) =>
    tx
      .select(shown)
      .from(archivedFiles)
      .where(and(eq(sha256, content), isThere)),
  )
  return file
}
