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
import { areNames, areTimes, isErrorMessage, isMetadataShallow, isMetadataSmall } from './limits.ts'
import { pollOutcomes } from './poll-outcomes.ts'

/** One row per unique delivery, written before it is acknowledged. `inbox` holds those still to be processed. */
export const deliveries = mediadock.table(
  'deliveries',
  {
    /** See deliveryId(): 6 bytes of the webhook id's digest, 10 of the body's. */
    id: uuid().primaryKey(),
    webhook_id: text().notNull(),
    request_id: uuid(),
    /** What it says of the request; null where it says nothing that we understand. */
    status: text({ enum: ['OK', 'ERROR'] }),
    key_name: text().notNull(),
    /** Of that key when the delivery was accepted; null on rows of releases that did not store it. */
    environment: text({ enum: ['live', 'sandbox', 'unknown'] }),
    signed_at: instant().notNull(),
    received_at: instant().notNull(),
    headers: jsonb().$type<Record<string, string>>().notNull(),
    body: bytea().notNull(),
    flags: text()
      .array()
      .notNull()
      .default(sql`'{}'`),
    /** Why it is parked; null while it is not. */
    parked_reason: text(),
  },
  (table) => [
    check('deliveries_environment', sql`environment in ('live', 'sandbox', 'unknown')`),
    check('deliveries_lengths', areNames('webhook_id', 'key_name')),
    // The lists, newest first, and retention. With the key, so that a seldom used key's deliveries are found without
    // reading the others.
    index('deliveries_received').on(table.received_at.desc(), table.id.desc(), table.key_name),
    // What else is of a request: landing looks for flags, pages show it.
    index('deliveries_request').on(table.request_id),
    // The few that are parked, newest first.
    index('deliveries_parked')
      .on(table.received_at.desc(), table.id.desc())
      .where(sql`parked_reason is not null`),
    // The few that something is to be said about.
    index('deliveries_flagged')
      .on(table.received_at.desc(), table.id.desc())
      .where(sql`flags <> '{}'`),
  ],
)

/**
 * The work queue, with the columns of a lease (platform/postgres/lease.ts). Narrow, so that claiming and settling write
 * a few bytes. `due_at` is when the delivery may be claimed next; while it is claimed, that is the end of the lease.
 */
export const inbox = mediadock.table(
  'inbox',
  {
    delivery_id: uuid().primaryKey(),
    due_at: instant().notNull(),
    claims: integer().notNull().default(0),
    failures: smallint().notNull().default(0),
    /** Why the last try failed, or was given back: an open transaction, a server that fails. */
    trouble: text(),
    /** The row of `replays` that put it back; null for a delivery that has just arrived. */
    replay_id: uuid(),
  },
  (table) => [
    // Claiming, the oldest first.
    index('inbox_due_at').on(table.due_at),
    // How much of a replay still waits.
    index('inbox_replay')
      .on(table.replay_id)
      .where(sql`replay_id is not null`),
  ],
)

/**
 * What each round of processing did with a delivery: for the on-call, pruned with the delivery. That it landed its
 * request at the first try, which is how nearly all end, has no row: it did so at `landed_at`.
 */
export const attempts = mediadock.table(
  'attempts',
  {
    delivery_id: uuid().notNull(),
    attempted_at: instant().notNull(),
    outcome: text().notNull(),
    detail: text(),
    /** The replay of many that this round ended; null for every other round. */
    replay_id: uuid(),
  },
  (table) => [
    primaryKey({ columns: [table.delivery_id, table.attempted_at] }),
    // To list the deliveries that ended so.
    index('attempts_unusual')
      .on(table.outcome, table.delivery_id)
      .where(sql`outcome <> 'landed'`),
    // What became of a replay.
    index('attempts_replay')
      .on(table.replay_id, table.outcome)
      .where(sql`replay_id is not null`),
  ],
)

/** What is tracked, and what became of it; read by others through the view `results`. */
export const requests = mediadock.table(
  'requests',
  {
    request_id: uuid().primaryKey(),
    status: text({ enum: requestStatuses }).notNull().default('IN_QUEUE'),
    model: text(),
    key_name: text(),
    /** Who named the key. `tracked`: tracking through us; null: a service's own INSERT; `landed`: webhook or result. */
    key_source: text({ enum: ['tracked', 'landed'] }),
    sandbox: boolean(),
    /** The environment of the key that signed the landed webhook, where tracking has corrected `sandbox` since. */
    signed_sandbox: boolean(),
    metadata: jsonb(),
    /** Of the submit that came through us. */
    idempotency_key: uuid(),
    /** How many pictures the submit asked for, where it is known; a webhook tells of one only. */
    items_wanted: smallint(),
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
    /** When the provider's own result was last taken over; null while only a webhook's word is known. */
    confirmed_at: instant(),
    /** When the request is polled next by its schedule; null once nothing is left to ask for. */
    next_poll_at: instant(),
    /**
     * When the request gets an extra poll: beside its schedule, out of fewer calls. A delivery asks for one that
     * contradicts the row or is of another environment, and so does a caller who waits for progress.
     */
    doubt_poll_at: instant(),
    /** How often the request was polled. A poll that got no call, and was given back, is not counted. */
    polls: integer().notNull().default(0),
    /** The fence of a claimed poll (platform/postgres/lease.ts). */
    poll_claims: integer().notNull().default(0),
    /** When the last poll was claimed or ended, and what came of it. */
    polled_at: instant(),
    poll_outcome: text({ enum: pollOutcomes }),
    poll_detail: text(),
    /** As the last poll of a running request saw them: 0 to 100, and the place in the provider's queue from 0. */
    progress: integer(),
    queue_position: integer(),
  },
  (table) => [
    check('requests_lengths', sql`${areNames('model', 'key_name', 'error_code')} and ${isErrorMessage}`),
    check('requests_metadata_size', isMetadataSmall),
    check('requests_metadata_depth', isMetadataShallow),
    check('requests_times', areTimes('tracked_at', 'created_at', 'completed_at', 'landed_at', 'confirmed_at')),
    // `infinity`: it is never polled again.
    check(
      'requests_poll_times',
      sql`${areTimes('polled_at', 'doubt_poll_at')} and (next_poll_at = 'infinity' or ${areTimes('next_poll_at')})`,
    ),
    // Pauses between polls grow with their number: below zero there would be none.
    check('requests_polls', sql`polls >= 0`),
    check('requests_status', sql`status in ('IN_QUEUE', 'IN_PROGRESS', 'COMPLETED', 'FAILED', 'CANCELED')`),
    check('requests_key_source', sql`key_source in ('tracked', 'landed')`),
    // A COMPLETED one has media besides: a trigger holds that, see the migration.
    check(
      'requests_landed',
      sql`(landed_at is not null) = (status in ('COMPLETED', 'FAILED', 'CANCELED')) and (landed_at is not null or (source is null and confirmed_at is null))`,
    ),
    // What the version before this one reads, which may run beside it: it goes with the next.
    index('requests_open')
      .on(sql`coalesce(next_poll_at, tracked_at)`)
      .where(sql`landed_at is null or next_poll_at is not null`),
    // The few without an end: to count and to claim those that should have one, without reading lost ones.
    index('requests_unended')
      .on(table.tracked_at, table.next_poll_at)
      .where(sql`landed_at is null`),
    // Requests with a time for their next poll, by key.
    index('requests_by_key')
      .on(sql`coalesce(key_name, '')`, table.next_poll_at)
      .where(sql`next_poll_at is not null`),
    // Results that are not complete, by key: they are polled before open requests.
    index('requests_incomplete')
      .on(sql`coalesce(key_name, '')`, table.next_poll_at)
      .where(sql`next_poll_at is not null and landed_at is not null`),
    // What the provider or a key held up: due at once when that is back (isHeldUp() in due.ts).
    index('requests_held_up')
      .on(sql`coalesce(key_name, '')`, table.polled_at)
      .where(sql`next_poll_at is not null and poll_outcome in ('unreachable', 'postponed')`),
    // The result of a submit that came through us.
    index('requests_idempotency_key')
      .on(table.idempotency_key)
      .where(sql`idempotency_key is not null`),
    // The few that wait for an extra poll: claimExtra() in poll-claims.ts.
    index('requests_doubted')
      .on(table.doubt_poll_at)
      .where(sql`doubt_poll_at is not null`),
    // The lists, newest first, and retention.
    index('requests_tracked').on(table.tracked_at.desc(), table.request_id.desc()),
    // The latest results; readers that catch up by landed_at.
    index('requests_landed')
      .on(table.landed_at.desc())
      .where(sql`landed_at is not null`),
    // Lists by a status that few have.
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
    /** Of the copy in the archive (archive/): where it is, what it is, since when; null while there is none. */
    archived_url: text(),
    bytes: bigint({ mode: 'number' }),
    content_type: text(),
    sha256: text(),
    archived_at: instant(),
    /** Why there is no copy and none will be made; `removed` where somebody had it forgotten. */
    archive_error: text(),
  },
  (table) => [primaryKey({ columns: [table.request_id, table.kind, table.position] })],
)

/** What internal services read. Its columns only grow. */
export const results = mediadock.view('results', {
  request_id: uuid().notNull(),
  status: text({ enum: requestStatuses }).notNull(),
  model: text(),
  output: jsonb(),
  media_complete: boolean().notNull(),
  cost: numeric(),
  error_code: text(),
  error_message: text(),
  created_at: instant().notNull(),
  completed_at: instant(),
  landed_at: instant(),
  source: text({ enum: ['webhook', 'reconciler'] }),
  key_name: text(),
  sandbox: boolean(),
  metadata: jsonb(),
  idempotency_key: uuid(),
  progress: integer(),
  queue_position: integer(),
}).as(sql`
  select request_id, status, model, output, media_complete, cost, error_code, error_message,
         coalesce(created_at, tracked_at) as created_at, completed_at, landed_at, source, key_name, sandbox, metadata, idempotency_key,
         case when status = 'COMPLETED' then 100 else progress end as progress,
         case when status = 'IN_QUEUE' then queue_position end as queue_position
  from mediadock.requests`)
