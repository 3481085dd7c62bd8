import {
  bigint,
  boolean,
  check,
  index,
  instant,
  integer,
  primaryKey,
  smallint,
  sql,
  text,
  uuid,
} from '../../platform/postgres/drizzle.ts'
import { mediadock } from '../domain/base-schema.ts'

// Only the role of the archive and the removal of media write these tables. Landing does not use them.

/** One row: the position of the feed up to which the archive has looked for media to copy. */
export const archiveProgress = mediadock.table(
  'archive_progress',
  {
    single: boolean().primaryKey().default(true),
    position: bigint({ mode: 'number' }).notNull().default(0),
  },
  () => [check('archive_progress_single', sql`single`)],
)

/** One row for each item of `media` that the archive has queued for a copy, or that was removed. */
export const mediaCopies = mediadock.table(
  'media_copies',
  {
    request_id: uuid().notNull(),
    kind: text({ enum: ['image', 'video', 'audio'] }).notNull(),
    position: integer().notNull(),
    url: text().notNull(),
    state: text({ enum: ['waiting', 'archived', 'failed', 'removed'] }).notNull(),
    /** When the copy is tried next. A claim moves it to the end of the lease, and `claims` fences the claim. */
    due_at: instant().notNull(),
    claims: integer().notNull().default(0),
    /** Consecutive claims without an end: the process was killed, perhaps by the content of this file. */
    unended: smallint().notNull().default(0),
    /** The number of failures that count as tries. Faults of the store and waits for a key do not count. */
    tries: smallint().notNull().default(0),
    /** The last failure: its kind, and its description. */
    fault: text({ enum: ['gone', 'refused', 'unreachable', 'store'] }),
    trouble: text(),
    sha256: text(),
    ended_at: instant(),
    /** When the link ends, as its source promises; null without a promise. */
    expires_at: instant(),
  },
  (table) => [
    primaryKey({ columns: [table.request_id, table.kind, table.position] }),
    index('media_copies_due')
      .on(table.due_at)
      .where(sql`state = 'waiting'`),
    // Due copies whose links end, soonest first: those that are not due are passed over within the index.
    index('media_copies_expiring')
      .on(table.expires_at, table.due_at)
      .where(sql`state = 'waiting' and expires_at is not null`),
    // The copies that refer to a file.
    index('media_copies_file')
      .on(table.sha256)
      .where(sql`sha256 is not null`),
    // Archived copies, oldest first.
    index('media_copies_archived')
      .on(table.ended_at)
      .where(sql`state = 'archived'`),
    // Copies given up recently.
    index('media_copies_failed')
      .on(table.ended_at)
      .where(sql`state = 'failed'`),
  ],
)

/** The files of the archive, by content. A file is stored once, even if several media have it. */
export const archivedFiles = mediadock.table(
  'archived_files',
  {
    sha256: text().primaryKey(),
    bytes: bigint({ mode: 'number' }).notNull(),
    content_type: text().notNull(),
    /** Changes when the file is registered anew. A file stored for an earlier value may be gone. */
    incarnation: uuid().notNull().default('00000000-0000-0000-0000-000000000000'),
    has_thumbnail: boolean().notNull().default(false),
    /** Null until the first media refers to it. */
    stored_at: instant(),
    /** When to check whether a copy refers to the file; null if one surely does. */
    look_at: instant(),
    /** Set while the file is being deleted, because no copy refers to it. No new copy may refer to it then. */
    removing_at: instant(),
  },
  (table) => [
    index('archived_files_look')
      .on(table.look_at)
      .where(sql`look_at is not null`),
  ],
)
