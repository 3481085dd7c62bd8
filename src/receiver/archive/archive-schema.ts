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

// Written by the archive alone, and only while there is one: landing knows nothing of it.

/** The one row that says up to which position of the feed the archive has looked for media to copy. */
export const archiveProgress = mediadock.table(
  'archive_progress',
  {
    single: boolean().primaryKey().default(true),
    position: bigint({ mode: 'number' }).notNull().default(0),
  },
  () => [check('archive_progress_single', sql`single`)],
)

/** What is or was to be copied: one row for each item of a complete result. */
export const mediaCopies = mediadock.table(
  'media_copies',
  {
    request_id: uuid().notNull(),
    kind: text({ enum: ['image', 'video', 'audio'] }).notNull(),
    position: integer().notNull(),
    /** The link that is copied, or was: a row of `media` that has another one by now is copied again. */
    url: text().notNull(),
    state: text({ enum: ['waiting', 'archived', 'failed', 'removed'] }).notNull(),
    /** When it is tried next; a claim moves it ahead, and `claims` fences the claim. */
    due_at: instant().notNull(),
    claims: integer().notNull().default(0),
    /** Claims in a row that nobody ended: whoever had them was killed, perhaps by what this is. */
    unended: smallint().notNull().default(0),
    /** How often it failed for a reason that is not ours. */
    tries: smallint().notNull().default(0),
    /** What went wrong last: the kind, and in words. */
    fault: text({ enum: ['gone', 'refused', 'unreachable', 'store'] }),
    trouble: text(),
    /** Of the file in the archive that it refers to. */
    sha256: text(),
    /** When it was archived, given up or removed. */
    ended_at: instant(),
  },
  (table) => [
    primaryKey({ columns: [table.request_id, table.kind, table.position] }),
    index('media_copies_due')
      .on(table.due_at)
      .where(sql`state = 'waiting'`),
    // Who refers to a file.
    index('media_copies_file')
      .on(table.sha256)
      .where(sql`sha256 is not null`),
    // What was archived the longest ago.
    index('media_copies_archived')
      .on(table.ended_at)
      .where(sql`state = 'archived'`),
    // What was given up lately.
    index('media_copies_failed')
      .on(table.ended_at)
      .where(sql`state = 'failed'`),
  ],
)

/** Files of the archive, by their content: each is kept once, however many media it is of. */
export const archivedFiles = mediadock.table(
  'archived_files',
  {
    sha256: text().primaryKey(),
    bytes: bigint({ mode: 'number' }).notNull(),
    content_type: text().notNull(),
    /** Another one each time the file is noted anew after it was deleted: what was stored before then may be gone. */
    incarnation: uuid().notNull().default('00000000-0000-0000-0000-000000000000'),
    /** A small picture of it lies beside it. */
    has_thumbnail: boolean().notNull().default(false),
    /** Null until the first media refers to it. */
    stored_at: instant(),
    /** When somebody has to see whether anything refers to it; null while that is sure. */
    look_at: instant(),
    /** Nothing refers to it: it is being deleted, and nothing new may refer to it. */
    removing_at: instant(),
  },
  (table) => [
    index('archived_files_look')
      .on(table.look_at)
      .where(sql`look_at is not null`),
  ],
)
