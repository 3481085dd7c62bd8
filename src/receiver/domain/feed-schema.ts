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
 * The names of a change's status. `changes` and `feed_entries` store the place in this list, from 1, in two bytes:
 * addChange() of feeding writes it, the view `feed` spells it out. REFUSED is a submit that failed after its 202. It
 * has no request, so `request_id` holds its Idempotency-Key.
 */
export const feedStatusNames = ['COMPLETED', 'FAILED', 'CANCELED', 'REFUSED'] as const

/**
 * Changes without a position: one row for each statement that landed results or ended submits, with all its changes.
 * `sequence_changes` deletes the row when it assigns positions.
 */
export const changes = mediadock.table(
  'changes',
  {
    /** The transaction that wrote the row. Newer rows are found by it, without scanning deleted ones. */
    xid: xid8()
      .notNull()
      .default(sql`pg_current_xact_id()`),
    /** Drawn while the requests' rows are locked, so it follows the order of changes of each request. */
    id: bigserial({ mode: 'number' }).notNull(),
    changed_at: instant().notNull(),
    request_ids: uuid().array().notNull(),
    statuses: smallint().array().notNull(),
    media_complete: boolean().array().notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.xid, table.id] }),
    // A row whose arrays do not match would block the feed.
    check(
      'changes_aligned',
      sql`cardinality(request_ids) = cardinality(statuses) and cardinality(request_ids) = cardinality(media_complete)
        and array_position(request_ids, null) is null and array_position(statuses, null) is null and array_position(media_complete, null) is null`,
    ),
  ],
)

/** Each change of a result once, in the order that readers see. Services read it through the view `feed`. */
export const feedEntries = mediadock.table('feed_entries', {
  /**
   * Microseconds since 1970 at sequencing, or the last position plus one if that is greater: see docs/architecture.md.
   */
  position: bigint({ mode: 'number' }).primaryKey(),
  changed_at: instant().notNull(),
  request_id: uuid().notNull(),
  status: smallint().notNull(),
  media_complete: boolean().notNull(),
})

/** One row: the last position that retention has deleted. */
export const feedBounds = mediadock.table(
  'feed_bounds',
  {
    single: boolean().primaryKey().default(true),
    pruned_to: bigint({ mode: 'number' }).notNull().default(0),
  },
  () => [check('feed_bounds_single', sql`single`)],
)

/** The positions of consumers that store their progress here, in the transaction of their own work. */
export const feedConsumers = mediadock.table('feed_consumers', {
  name: text().primaryKey(),
  /** The last processed position. 0 starts at the oldest change that is kept. */
  position: bigint({ mode: 'number' }).notNull().default(0),
  moved_at: instant()
    .notNull()
    .default(sql`now()`),
})

/** The feed for internal services. Columns are only ever added. */
export const feed = mediadock.view('feed', {
  position: bigint({ mode: 'number' }).notNull(),
  /** Null for a refused submit. */
  request_id: uuid(),
  status: text({ enum: feedStatusNames }).notNull(),
  media_complete: boolean().notNull(),
  changed_at: instant().notNull(),
  /** This column and the next ones are set only for a refused submit, from the present row of `generations`. */
  idempotency_key: uuid(),
  error_code: text(),
  error_message: text(),
  metadata: jsonb(),
  model: text(),
  key_name: text(),
  sandbox: boolean(),
  source_name: text(),
}).as(sql`
  select position, case when status <> 4 then request_id end as request_id,
    case status when 1 then 'COMPLETED' when 2 then 'FAILED' when 3 then 'CANCELED' when 4 then 'REFUSED' end as status, media_complete, changed_at,
    case when status = 4 then request_id end as idempotency_key,
    case when status = 4 then (select g.answer -> 'error' ->> 'code' from mediadock.generations g where g.idempotency_key = e.request_id) end as error_code,
    case when status = 4 then (select g.answer -> 'error' ->> 'message' from mediadock.generations g where g.idempotency_key = e.request_id) end as error_message,
    case when status = 4 then (
      select g.metadata from mediadock.generations g where g.idempotency_key = e.request_id) end as metadata,
    case when status = 4 then (
      select g.model from mediadock.generations g where g.idempotency_key = e.request_id) end as model,
    case when status = 4 then (
      select g.key_name from mediadock.generations g where g.idempotency_key = e.request_id) end as key_name,
    case when status = 4 then (
      select g.sandbox from mediadock.generations g where g.idempotency_key = e.request_id) end as sandbox,
    case when status = 4 then (
      select coalesce(g.source_name, 'generation-queue') from mediadock.generations g
      where g.idempotency_key = e.request_id) end as source_name
  from mediadock.feed_entries e`)
