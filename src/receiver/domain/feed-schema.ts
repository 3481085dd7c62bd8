import { bigint, bigserial, boolean, check, customType, primaryKey, smallint, sql, text, uuid } from '../../runtime/postgres/drizzle.ts'
import { instant, mediadock } from './base-schema.ts'

const xid8 = customType<{ data: string }>({ dataType: () => 'xid8' })

/** How `changes` and `feed_entries` say the end of a request, in two bytes: `feed` spells it out. */
export const feedStatuses = { COMPLETED: 1, FAILED: 2, CANCELED: 3 } as const

/**
 * What landed and has no position yet: one row for each statement that lands, with
 * all that it landed. It is gone as soon as `sequence_changes` has given positions.
 */
export const changes = mediadock.table(
  'changes',
  {
    /** The transaction that wrote it: what another that is newer brings is found without looking through what is gone. */
    xid: xid8('xid')
      .notNull()
      .default(sql`pg_current_xact_id()`),
    /** In the order in which the changes of one request came: it is drawn while their rows are locked. */
    id: bigserial('id', { mode: 'number' }).notNull(),
    changedAt: instant('changed_at').notNull(),
    requestIds: uuid('request_ids').array().notNull(),
    statuses: smallint('statuses').array().notNull(),
    mediaComplete: boolean('media_complete').array().notNull(),
  },
  (table) => [primaryKey({ columns: [table.xid, table.id] })],
)

/** The changes of results, each once, in the order in which readers see them; read by others through the view `feed`. */
export const feedEntries = mediadock.table('feed_entries', {
  /** Microseconds since 1970 when it was given, or one more than the last: see docs/architecture.md. */
  position: bigint('position', { mode: 'number' }).primaryKey(),
  changedAt: instant('changed_at').notNull(),
  requestId: uuid('request_id').notNull(),
  status: smallint('status').notNull(),
  mediaComplete: boolean('media_complete').notNull(),
})

/** The one row that says up to which position the feed has been forgotten. */
export const feedBounds = mediadock.table(
  'feed_bounds',
  {
    single: boolean('single').primaryKey().default(true),
    prunedTo: bigint('pruned_to', { mode: 'number' }).notNull().default(0),
  },
  () => [check('feed_bounds_single', sql`single`)],
)

/** How far consumers have read that keep their place here, in the transaction of their own work. */
export const feedConsumers = mediadock.table('feed_consumers', {
  name: text('name').primaryKey(),
  /** The last position that is done; 0 for one that begins with the oldest change that is kept. */
  position: bigint('position', { mode: 'number' }).notNull().default(0),
  movedAt: instant('moved_at').notNull().defaultNow(),
})

/** What internal services read on from. Its columns only grow. */
export const feed = mediadock.view('feed', {
  position: bigint('position', { mode: 'number' }).notNull(),
  requestId: uuid('request_id').notNull(),
  status: text('status', { enum: ['COMPLETED', 'FAILED', 'CANCELED'] }).notNull(),
  mediaComplete: boolean('media_complete').notNull(),
  changedAt: instant('changed_at').notNull(),
}).as(sql`
  select position, request_id, case status when 1 then 'COMPLETED' when 2 then 'FAILED' when 3 then 'CANCELED' end as status, media_complete, changed_at
  from mediadock.feed_entries`)
