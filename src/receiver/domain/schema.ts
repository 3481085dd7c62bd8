import {
  bigint,
  boolean,
  bytea,
  check,
  doublePrecision,
  index,
  instant,
  integer,
  jsonb,
  numeric,
  primaryKey,
  smallint,
  sql,
  text,
  uuid,
} from '../../platform/postgres/drizzle.ts'
import { requestStatuses } from '../../wire/schemas.ts'
import { mediadock } from './base-schema.ts'
import { areNames, areTimes, isErrorMessage, isOtherSource } from './limits.ts'
import { pollOutcomes } from './poll-endings.ts'

/**
 * One row per unique delivery, written before it is acknowledged. `inbox` lists the pending ones. The life of a
 * delivery:
 *
 *   stored → pending | parked                  parked where it is unreadable (intake/store.ts)
 *   pending → processed | parked | discarded   by the process that has claimed it, at its storing or from the inbox
 *   parked → pending                           a replay, another key that signs it, or the tracking of its request
 *   pending | parked → processed               a replay of it alone; or, if parked, its request lands in its environment
 *   processed → pending                        a replay of many, or a live key that signs it too
 *   processed → parked                         a replay of it alone that finds a mismatch
 */
export const deliveries = mediadock.table(
  'deliveries',
  {
    /** See deliveryId(): 6 bytes of the webhook id's digest, then 10 of the body's. */
    id: uuid().primaryKey(),
    webhook_id: text().notNull(),
    request_id: uuid(),
    /** The reported end, in the words of the default source, which never sends CANCELED; null without a report. */
    status: text({ enum: ['OK', 'ERROR', 'CANCELED'] }),
    key_name: text().notNull(),
    /** The source that signed; null for the default source. Two sources may send the same webhook id. */
    source_name: text(),
    /** The environment of the key at acceptance, or of the key that took the delivery over (intake/store.ts). */
    environment: text({ enum: ['live', 'sandbox', 'unknown'] })
      .notNull()
      .default('unknown'),
    signed_at: instant().notNull(),
    received_at: instant().notNull(),
    headers: jsonb().$type<Record<string, string>>().notNull(),
    body: bytea().notNull(),
    flags: text().array().notNull().default([]),
    /**
     * Why the delivery is parked; null otherwise. Set by intake/store.ts, landing/flags-sql.ts, landing/hint.ts and
     * landing/inbox.ts (after failures, or unreadable). Cleared by replays and landings, by another key that signs it
     * (intake/store.ts), and when its request is tracked (submitting/tracking.ts).
     */
    parked_reason: text(),
  },
  (table) => [
    check('deliveries_environment', sql`environment in ('live', 'sandbox', 'unknown')`),
    check('deliveries_lengths', areNames('webhook_id', 'key_name')),
    // Lists (newest first) and retention. The key is included so that the deliveries of a rarely used key are found
    // without reading the others.
    index('deliveries_received').on(table.received_at.desc(), table.id.desc(), table.key_name),
    // All deliveries of a request: landing reads their flags, pages show them.
    index('deliveries_request').on(table.request_id),
    // Parked deliveries, newest first.
    index('deliveries_parked')
      .on(table.received_at.desc(), table.id.desc())
      .where(sql`parked_reason is not null`),
    // Flagged deliveries, newest first.
    index('deliveries_flagged')
      .on(table.received_at.desc(), table.id.desc())
      .where(sql`flags <> '{}'`),
  ],
)

/**
 * The deliveries to land, with the columns of a lease (platform/postgres/lease.ts). Rows are narrow so that work writes
 * little. `due_at` is when the delivery may be claimed next; for a claimed delivery it is the end of the lease.
 */
export const inbox = mediadock.table(
  'inbox',
  {
    delivery_id: uuid().primaryKey(),
    due_at: instant().notNull(),
    /** The fence: 1 for the first claim of a delivery. A row that replaces another begins higher (claimsAnew). */
    claims: integer().notNull().default(0),
    failures: smallint().notNull().default(0),
    /** Why the last try failed or was given back: for example an open transaction, or a failing server. */
    trouble: text(),
    /** The row of `replays` that put the delivery back; null for one that has just arrived. */
    replay_id: uuid(),
  },
  (table) => [
    // Claims, oldest first.
    index('inbox_due_at').on(table.due_at),
    // The pending deliveries of a replay.
    index('inbox_replay')
      .on(table.replay_id)
      .where(sql`replay_id is not null`),
  ],
)

/**
 * One row per round of processing of a delivery, for the on-call engineer; pruned with the delivery. A delivery that
 * lands its request at the first try, as nearly all do, has no row; returned claims have none. A discarded delivery
 * leaves those of its earlier rounds, which are pruned by their age.
 */
export const attempts = mediadock.table(
  'attempts',
  {
    delivery_id: uuid().notNull(),
    attempted_at: instant().notNull(),
    outcome: text().notNull(),
    detail: text(),
    /** The replay of many deliveries that this round belongs to; null without one. */
    replay_id: uuid(),
  },
  (table) => [
    primaryKey({ columns: [table.delivery_id, table.attempted_at] }),
    // Deliveries by an outcome other than `landed`.
    index('attempts_unusual')
      .on(table.outcome, table.delivery_id)
      .where(sql`outcome <> 'landed'`),
    // Deliveries by the time when they were parked.
    index('attempts_parked')
      .on(table.attempted_at)
      .where(sql`outcome = 'parked'`),
    // The outcomes of a replay.
    index('attempts_replay')
      .on(table.replay_id, table.outcome)
      .where(sql`replay_id is not null`),
  ],
)

/** A request has a terminal status if and only if it has landed. Only then may `source` and `confirmed_at` be set. */
const isLandedWhole = sql`(landed_at is not null) = (status in ('COMPLETED', 'FAILED', 'CANCELED')) and (landed_at is not null or (source is null and confirmed_at is null))`

/**
 * Known requests with their state and result. Services read them through the view `results`. The life of a request:
 * tracked → landed → confirmed. `next_poll_at` is the schedule of its polls, `doubt_poll_at` the time of an extra poll.
 *
 * Rules that a constraint cannot express are triggers (drizzle/receiver/0000_baseline.sql, where no other is named):
 *
 * - `join_tracked`: an INSERT by a service, for a request that a webhook made first, fills in the missing values of its
 *   row. Its key replaces one that only a webhook named, and the provider is then polled at once
 *   (0023_poll_leases.sql). The receiver's own tracking has its own rules (submitting/tracking.ts).
 * - `require_media`: a COMPLETED request has a row of `media`. It runs after the statement that writes both.
 * - `note_joined`: values that join a landed result are a change for readers, so they get a row of `changes`
 *   (0024_own_environments.sql).
 * - `requests_metadata`: metadata is bounded in size and depth (0013_check_metadata_once.sql).
 */
export const requests = mediadock.table(
  'requests',
  {
    request_id: uuid().primaryKey(),
    /** The source to which the request belongs; null for the default source. It never changes. */
    source_name: text(),
    /** The source's own id of the job, where that is no uuid (requestIdOf); null where it is request_id. */
    external_id: text(),
    status: text({ enum: requestStatuses }).notNull().default('IN_QUEUE'),
    model: text(),
    key_name: text(),
    /**
     * The origin of key_name. `tracked`: the receiver's own tracking; null: a service's INSERT; `landed`: a webhook,
     * hints included, or a result.
     */
    key_source: text({ enum: ['tracked', 'landed'] }),
    /** The environments of the request and of its result: see domain/environment.ts. */
    sandbox: boolean(),
    signed_sandbox: boolean(),
    metadata: jsonb(),
    /** The Idempotency-Key of a submit through the receiver. */
    idempotency_key: uuid(),
    /** Not used any more. */
    items_wanted: smallint(),
    /** Null for an output of one media item alone: the view `results` makes it from the row of `media`. */
    output: jsonb(),
    media_complete: boolean().notNull().default(false),
    cost: numeric(),
    error_code: text(),
    error_message: text(),
    /** The provider's times. */
    created_at: instant(),
    completed_at: instant(),
    source: text({ enum: ['webhook', 'reconciler'] }),
    tracked_at: instant()
      .notNull()
      .default(sql`now()`),
    landed_at: instant(),
    /** When the provider's own result was taken over; null while only a webhook has reported the end. */
    confirmed_at: instant(),
    /** The times of the next polls, and of the lease: see domain/poll-schedule.ts. */
    next_poll_at: instant(),
    doubt_poll_at: instant(),
    poll_leased_until: instant()
      .notNull()
      .default(sql`'-infinity'`),
    /** The number of polls that showed something of the request: see endPoll() in reconciling/polling.ts. */
    polls: integer().notNull().default(0),
    /** The fence of a claimed poll (platform/postgres/lease.ts). */
    poll_claims: integer().notNull().default(0),
    /** When the last poll was claimed or ended, and its outcome. */
    polled_at: instant(),
    poll_outcome: text({ enum: pollOutcomes }),
    poll_detail: text(),
    /** From polls of the running request: the highest progress, 0 to 100, and the last place in the queue, from 0. */
    progress: integer(),
    queue_position: integer(),
  },
  (table) => [
    check('requests_lengths', sql`${areNames('model', 'key_name', 'error_code')} and ${isErrorMessage}`),
    check('requests_times', areTimes('tracked_at', 'created_at', 'completed_at', 'landed_at', 'confirmed_at')),
    // `infinity`: no further poll by the schedule.
    check(
      'requests_poll_times',
      sql`${areTimes('polled_at', 'doubt_poll_at')} and (next_poll_at = 'infinity' or ${areTimes('next_poll_at')})`,
    ),
    check('requests_source', isOtherSource),
    // The pause between polls grows with this number; a negative one would remove the pause.
    check('requests_polls', sql`polls >= 0`),
    check('requests_status', sql`status in ('IN_QUEUE', 'IN_PROGRESS', 'COMPLETED', 'FAILED', 'CANCELED')`),
    check('requests_key_source', sql`key_source in ('tracked', 'landed')`),
    check('requests_landed', isLandedWhole),
    // Lists of overdue requests, in their order.
    index('requests_open')
      .on(sql`coalesce(next_poll_at, tracked_at)`)
      .where(sql`landed_at is null or next_poll_at is not null`),
    // Requests without an end, to count and claim overdue ones without reading lost ones.
    index('requests_unended')
      .on(table.tracked_at, table.next_poll_at)
      .where(sql`landed_at is null`),
    // Requests with a time for their next poll, by key.
    index('requests_by_key')
      .on(sql`coalesce(key_name, '')`, table.next_poll_at)
      .where(sql`next_poll_at is not null`),
    // Ended requests that are still polled, by key: incomplete or unconfirmed ones. They come before open requests.
    index('requests_incomplete')
      .on(sql`coalesce(key_name, '')`, table.next_poll_at)
      .where(sql`next_poll_at is not null and landed_at is not null`),
    // Requests held up by an outage of the provider or a key. They are due at once after it (isHeldUp in due.ts).
    index('requests_held_up')
      .on(sql`coalesce(key_name, '')`, table.polled_at)
      .where(sql`next_poll_at is not null and poll_outcome in ('unreachable', 'postponed')`),
    // The result of a submit through the receiver.
    index('requests_idempotency_key')
      .on(table.idempotency_key)
      .where(sql`idempotency_key is not null`),
    // Requests that wait for an extra poll: duePolls() in due.ts.
    index('requests_doubted')
      .on(table.doubt_poll_at)
      .where(sql`doubt_poll_at is not null`),
    // Requests by the id that their source gave them.
    index('requests_external_id')
      .on(table.external_id)
      .where(sql`external_id is not null`),
    // Lists, newest first.
    index('requests_tracked').on(table.tracked_at.desc(), table.request_id.desc()),
    // The latest results, and readers that catch up by landed_at.
    index('requests_landed')
      .on(table.landed_at.desc())
      .where(sql`landed_at is not null`),
    // Lists by a rare status.
    index('requests_unusual')
      .on(table.status, table.tracked_at.desc(), table.request_id.desc())
      .where(sql`status in ('FAILED', 'CANCELED')`),
  ],
)

/** One row per output item. */
export const media = mediadock.table(
  'media',
  {
    request_id: uuid().notNull(),
    kind: text({ enum: ['image', 'video', 'audio'] }).notNull(),
    position: integer().notNull(),
    url: text().notNull(),
    original_url: text(),
    width: integer(),
    height: integer(),
    duration_seconds: doublePrecision(),
    /** The copy in the archive (archive/): its place, properties and time; null without a copy. */
    archived_url: text(),
    bytes: bigint({ mode: 'number' }),
    content_type: text(),
    sha256: text(),
    archived_at: instant(),
    /** Why there will be no copy; `removed` after a removal by request, `expired` after its retention. */
    archive_error: text(),
  },
  (table) => [primaryKey({ columns: [table.request_id, table.kind, table.position] })],
)
