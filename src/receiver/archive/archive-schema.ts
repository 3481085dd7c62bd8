import {
  bigint,
  boolean,
  check,
  index,
  integer,
  primaryKey,
  smallint,
  sql,
  text,
  uuid,
} from '../../platform/postgres/drizzle.ts'
import { instant, mediadock } from '../domain/base-schema.ts'

// Written by the archive alone, and only while there is one: landing knows nothing of it.

/** The one row that says up to which position of the feed the archive has looked for media to copy. */
export const archiveProgress = mediadock.table(
  'archive_progress',
  {
    single: boolean('single').primaryKey().default(true),
    position: bigint('position', { mode: 'number' }).notNull().default(0),
  },
  () => [check('archive_progress_single', sql`single`)],
)

/** What is or was to be copied: one row for each item of a complete result. */
export const mediaCopies = mediadock.table(
  'media_copies',
  {
    requestId: uuid('request_id').notNull(),
    kind: text('kind', { enum: ['image', 'video', 'audio'] }).notNull(),
    position: integer('position').notNull(),
    /** The link that is copied, or was: a row of `media` that has another one by now is copied again. */
    url: text('url').notNull(),
    state: text('state', { enum: ['waiting', 'archived', 'failed', 'removed'] }).notNull(),
    /** When it is tried next; a claim moves it ahead, and `claims` fences the claim. */
    dueAt: instant('due_at').notNull(),
    claims: integer('claims').notNull().default(0),
    /** Claims in a row that nobody ended: whoever had them was killed, perhaps by what this is. */
    unended: smallint('unended').notNull().default(0),
    /** How often it failed for a reason that is not ours. */
    tries: smallint('tries').notNull().default(0),
    /** What went wrong last: the kind, and in words. */
    fault: text('fault', { enum: ['gone', 'refused', 'unreachable', 'store'] }),
    trouble: text('trouble'),
    /** Of the file in the archive that it refers to. */
    sha256: text('sha256'),
    /** When it was archived, given up or removed. */
    endedAt: instant('ended_at'),
  },
  (table) => [
    primaryKey({ columns: [table.requestId, table.kind, table.position] }),
    index('media_copies_due')
      .on(table.dueAt)
      .where(sql`state = 'waiting'`),
    // Who refers to a file.
    index('media_copies_file')
      .on(table.sha256)
      .where(sql`sha256 is not null`),
    // What was archived the longest ago.
    index('media_copies_archived')
      .on(table.endedAt)
      .where(sql`state = 'archived'`),
    // What was given up lately.
    index('media_copies_failed')
      .on(table.endedAt)
      .where(sql`state = 'failed'`),
  ],
)

/** Files of the archive, by their content: each is kept once, however many media it is of. */
export const archivedFiles = mediadock.table(
  'archived_files',
  {
    sha256: text('sha256').primaryKey(),
    bytes: bigint('bytes', { mode: 'number' }).notNull(),
    contentType: text('content_type').notNull(),
    /** Another one each time the file is noted anew after it was deleted: what was stored before then may be gone. */
    incarnation: uuid('incarnation').notNull().default('00000000-0000-0000-0000-000000000000'),
    /** A small picture of it lies beside it. */
    hasThumbnail: boolean('has_thumbnail').notNull().default(false),
    /** Null until the first media refers to it. */
    storedAt: instant('stored_at'),
    /** When somebody has to see whether anything refers to it; null while that is sure. */
    lookAt: instant('look_at'),
    /** Nothing refers to it: it is being deleted, and nothing new may refer to it. */
    removingAt: instant('removing_at'),
  },
  (table) => [
    index('archived_files_look')
      .on(table.lookAt)
      .where(sql`look_at is not null`),
  ],
)
