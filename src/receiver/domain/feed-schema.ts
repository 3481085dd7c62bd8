import {
  bigint,
  bigserial,
  boolean,
  check,
  customType,
  instant,
  jsonb,
  primaryKey,
  smallint,
  sql,
  text,
  uuid,
} from '../../platform/postgres/drizzle.ts'
import { mediadock } from './base-schema.ts'

const xid8 = customType<{ data: string }>({ dataType: () => 'xid8' })

/**
 * What a change came to, in two bytes in `changes` and `feed_entries`: `feed` spells it out. REFUSED is a submit that
 * was answered 202 and then refused or given up: its `request_id` is its Idempotency-Key, since it has no request.
 */
export const feedStatuses = { COMPLETED: 1, FAILED: 2, CANCELED: 3, REFUSED: 4 } as const
export const feedStatusNames = ['COMPLETED', 'FAILED', 'CANCELED', 'REFUSED'] as const

/**
 * What landed and has no position yet: one row for each statement that lands, with
 * all that it landed. It is gone as soon as `sequence_changes` has given positions.
 */
export const changes = mediadock.table(
  'changes',
  {
    /** The transaction that wrote it: what another that is newer brings is found without looking through what is gone. */
    xid: xid8()
      .notNull()
      .default(sql`pg_current_xact_id()`),
    /** In the order in which the changes of one request came: it is drawn while their rows are locked. */
    id: bigserial({ mode: 'number' }).notNull(),
    changed_at: instant().notNull(),
    request_ids: uuid().array().notNull(),
    statuses: smallint().array().notNull(),
    media_complete: boolean().array().notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.xid, table.id] }),
    // One row that cannot be taken apart would hold up the feed.
    check(
      'changes_aligned',
      sql`cardinality(request_ids) = cardinality(statuses) and cardinality(request_ids) = cardinality(media_complete)
        and array_position(request_ids, null) is null and array_position(statuses, null) is null and array_position(media_complete, null) is null`,
    ),
  ],
)

/** The changes of results, each once, in the order in which readers see them; read by others through the view `feed`. */
export const feedEntries = mediadock.table('feed_entries', {
  /** Microseconds since 1970 when it was given, or one more than the last: see docs/architecture.md. */
  position: bigint({ mode: 'number' }).primaryKey(),
  changed_at: instant().notNull(),
  request_id: uuid().notNull(),
  status: smallint().notNull(),
  media_complete: boolean().notNull(),
})

/** The one row that says up to which position the feed has been forgotten. */
export const feedBounds = mediadock.table(
  'feed_bounds',
  {
    single: boolean().primaryKey().default(true),
    pruned_to: bigint({ mode: 'number' }).notNull().default(0),
  },
  () => [check('feed_bounds_single', sql`single`)],
)

/** How far consumers have read that keep their place here, in the transaction of their own work. */
export const feedConsumers = mediadock.table('feed_consumers', {
  name: text().primaryKey(),
  /** The last position that is done; 0 for one that begins with the oldest change that is kept. */
  position: bigint({ mode: 'number' }).notNull().default(0),
  moved_at: instant()
    .notNull()
    .default(sql`now()`),
})

/** What internal services read on from. Its columns only grow. */
export const feed = mediadock.view('feed', {
  position: bigint({ mode: 'number' }).notNull(),
  /** Null where a submit was refused. */
  request_id: uuid(),
  status: text({ enum: feedStatusNames }).notNull(),
  media_complete: boolean().notNull(),
  changed_at: instant().notNull(),
  /** The rest is null but where a submit was refused: it is read from `generations`, as that is now. */
  idempotency_key: uuid(),
  error_code: text(),
  error_message: text(),
  metadata: jsonb(),
}).as(sql`
  select position, case when status <> 4 then request_id end as request_id,
    case status when 1 then 'COMPLETED' when 2 then 'FAILED' when 3 then 'CANCELED' when 4 then 'REFUSED' end as status, media_complete, changed_at,
    case when status = 4 then request_id end as idempotency_key,
    case when status = 4 then (select g.answer -> 'error' ->> 'code' from mediadock.generations g where g.idempotency_key = e.request_id) end as error_code,
    case when status = 4 then (select g.answer -> 'error' ->> 'message' from mediadock.generations g where g.idempotency_key = e.request_id) end as error_message,
    case when status = 4 then (select g.metadata from mediadock.generations g where g.idempotency_key = e.request_id) end as metadata
  from mediadock.feed_entries e`)
