import {
  bigint,
  boolean,
  check,
  doublePrecision,
  index,
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
import { bytea, instant, mediadock } from './base-schema.ts'
import { areNames, areTimes, isErrorMessage, isMetadataShallow, isMetadataSmall } from './limits.ts'
import { pollOutcomes } from './poll-outcomes.ts'

/** One row per unique delivery, written before it is acknowledged. What is still to be done with it stands in `inbox`. */
export const deliveries = mediadock.table(
  'deliveries',
  {
    /** See deliveryId(): 6 bytes of the webhook id's digest, 10 of the body's. */
    id: uuid('id').primaryKey(),
    webhookId: text('webhook_id').notNull(),
    requestId: uuid('request_id'),
    /** What it says of the request; null where it says nothing that we understand. */
    status: text('status', { enum: ['OK', 'ERROR'] }),
    keyName: text('key_name').notNull(),
    /** Of that key when the delivery was accepted; null on rows of releases that did not store it. */
    environment: text('environment', { enum: ['live', 'sandbox', 'unknown'] }),
    signedAt: instant('signed_at').notNull(),
    receivedAt: instant('received_at').notNull(),
    headers: jsonb('headers').$type<Record<string, string>>().notNull(),
    body: bytea('body').notNull(),
    flags: text('flags')
      .array()
      .notNull()
      .default(sql`'{}'`),
    /** Why it is parked; null while it is not. */
    parkedReason: text('parked_reason'),
  },
  (table) => [
    check('deliveries_environment', sql`environment in ('live', 'sandbox', 'unknown')`),
    check('deliveries_lengths', areNames('webhook_id', 'key_name')),
    // The lists, newest first, and retention. The key besides, so that those of a key that is seldom used are found without reading the others.
    index('deliveries_received').on(table.receivedAt.desc(), table.id.desc(), table.keyName),
    // What else is of a request: landing looks for flags, pages show it.
    index('deliveries_request').on(table.requestId),
    // The few that are parked, newest first.
    index('deliveries_parked')
      .on(table.receivedAt.desc(), table.id.desc())
      .where(sql`parked_reason is not null`),
    // The few that something is to be said about.
    index('deliveries_flagged')
      .on(table.receivedAt.desc(), table.id.desc())
      .where(sql`flags <> '{}'`),
  ],
)

/** The work queue: narrow, so that claiming and finishing write a few bytes. `claims` fences: only the last claimant settles. */
export const inbox = mediadock.table(
  'inbox',
  {
    deliveryId: uuid('delivery_id').primaryKey(),
    dueAt: instant('due_at').notNull(),
    claims: integer('claims').notNull().default(0),
    failures: smallint('failures').notNull().default(0),
    /** Why the last round came to nothing, where that was no failure of its own: an open transaction, a server that fails. */
    trouble: text('trouble'),
  },
  (table) => [
    // Claiming, the oldest first.
    index('inbox_due_at').on(table.dueAt),
  ],
)

/**
 * What each round of processing did with a delivery: for the on-call, pruned with the delivery. That it landed its
 * request at the first try, which is how nearly all end, has no row: it did so at `landed_at`.
 */
export const attempts = mediadock.table(
  'attempts',
  {
    deliveryId: uuid('delivery_id').notNull(),
    attemptedAt: instant('attempted_at').notNull(),
    outcome: text('outcome').notNull(),
    detail: text('detail'),
  },
  (table) => [
    primaryKey({ columns: [table.deliveryId, table.attemptedAt] }),
    // To list the deliveries that ended so.
    index('attempts_unusual')
      .on(table.outcome, table.deliveryId)
      .where(sql`outcome <> 'landed'`),
  ],
)

/** What is tracked, and what became of it; read by others through the view `results`. */
export const requests = mediadock.table(
  'requests',
  {
    requestId: uuid('request_id').primaryKey(),
    status: text('status', { enum: requestStatuses }).notNull().default('IN_QUEUE'),
    model: text('model'),
    keyName: text('key_name'),
    /** `tracked`: whoever tracked it through us named the key; null: a service's own INSERT; `landed`: the webhook or the result. */
    keySource: text('key_source', { enum: ['tracked', 'landed'] }),
    sandbox: boolean('sandbox'),
    /** Where tracking corrected `sandbox` under what a webhook had landed: the environment of the key that signed that. */
    signedSandbox: boolean('signed_sandbox'),
    metadata: jsonb('metadata'),
    /** Of the submit that came through us. */
    idempotencyKey: uuid('idempotency_key'),
    /** How many pictures the submit asked for, where it is known; a webhook tells of one only. */
    itemsWanted: smallint('items_wanted'),
    output: jsonb('output'),
    mediaComplete: boolean('media_complete').notNull().default(false),
    cost: numeric('cost'),
    errorCode: text('error_code'),
    errorMessage: text('error_message'),
    /** The provider's times. */
    createdAt: instant('created_at'),
    completedAt: instant('completed_at'),
    source: text('source', { enum: ['webhook', 'reconciler'] }),
    trackedAt: instant('tracked_at').notNull().defaultNow(),
    landedAt: instant('landed_at'),
    /** When the provider's own result was last taken over; null while only a webhook's word is known. */
    confirmedAt: instant('confirmed_at'),
    /** Polling: when next (null once nothing is left to ask), how often so far (it fences a claim like inbox.claims), and what came of it last. */
    nextPollAt: instant('next_poll_at'),
    /** When to poll because a delivery contradicts the row, or is of another environment: beside the schedule, out of fewer calls. */
    doubtPollAt: instant('doubt_poll_at'),
    polls: integer('polls').notNull().default(0),
    polledAt: instant('polled_at'),
    pollOutcome: text('poll_outcome', { enum: pollOutcomes }),
    pollDetail: text('poll_detail'),
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
    // The few without an end: to count and to claim those that should have one; of what was given up as lost no row is read for it.
    index('requests_unended')
      .on(table.trackedAt, table.nextPollAt)
      .where(sql`landed_at is null`),
    // What has a time of its own for its next poll, by key: what may wait apart from what somebody needs (mayWait() in due.ts).
    index('requests_turns')
      .on(
        sql`coalesce(key_name, '')`,
        sql`coalesce(status = 'COMPLETED' and (items_wanted = 1 or (output -> 'images') is null), false)`,
        table.nextPollAt,
      )
      .where(sql`next_poll_at is not null`),
    // What the provider or a key held up: due at once when that is back (isHeldUp() in due.ts).
    index('requests_held_up')
      .on(sql`coalesce(key_name, '')`, table.polledAt)
      .where(sql`next_poll_at is not null and poll_outcome in ('unreachable', 'postponed')`),
    // The result of a submit that came through us.
    index('requests_idempotency_key')
      .on(table.idempotencyKey)
      .where(sql`idempotency_key is not null`),
    // The few that a delivery made doubtful: claimDoubted() in poll-claims.ts.
    index('requests_doubted')
      .on(table.doubtPollAt)
      .where(sql`doubt_poll_at is not null`),
    // The lists, newest first, and retention.
    index('requests_tracked').on(table.trackedAt.desc(), table.requestId.desc()),
    // The latest results; readers that catch up by landed_at.
    index('requests_landed')
      .on(table.landedAt.desc())
      .where(sql`landed_at is not null`),
    // Lists by a status that few have.
    index('requests_unusual')
      .on(table.status, table.trackedAt.desc(), table.requestId.desc())
      .where(sql`status in ('FAILED', 'CANCELED')`),
  ],
)

/** One row per output item. */
export const media = mediadock.table(
  'media',
  {
    requestId: uuid('request_id').notNull(),
    kind: text('kind', { enum: ['image', 'video', 'audio'] }).notNull(),
    position: integer('position').notNull(),
    url: text('url').notNull(),
    originalUrl: text('original_url'),
    width: integer('width'),
    height: integer('height'),
    durationSeconds: doublePrecision('duration_seconds'),
    /** Of the copy in the archive (archiving/): where it is, what it is, since when; null while there is none. */
    archivedUrl: text('archived_url'),
    bytes: bigint('bytes', { mode: 'number' }),
    contentType: text('content_type'),
    sha256: text('sha256'),
    archivedAt: instant('archived_at'),
    /** Why there is no copy and none will be made; `removed` where somebody had it forgotten. */
    archiveError: text('archive_error'),
  },
  (table) => [primaryKey({ columns: [table.requestId, table.kind, table.position] })],
)

/** What internal services read. Its columns only grow. */
export const results = mediadock.view('results', {
  requestId: uuid('request_id').notNull(),
  status: text('status', { enum: requestStatuses }).notNull(),
  model: text('model'),
  output: jsonb('output'),
  mediaComplete: boolean('media_complete').notNull(),
  cost: numeric('cost'),
  errorCode: text('error_code'),
  errorMessage: text('error_message'),
  createdAt: instant('created_at').notNull(),
  completedAt: instant('completed_at'),
  landedAt: instant('landed_at'),
  source: text('source', { enum: ['webhook', 'reconciler'] }),
  keyName: text('key_name'),
  sandbox: boolean('sandbox'),
  metadata: jsonb('metadata'),
  idempotencyKey: uuid('idempotency_key'),
}).as(sql`
  select request_id, status, model, output, media_complete, cost, error_code, error_message,
         coalesce(created_at, tracked_at) as created_at, completed_at, landed_at, source, key_name, sandbox, metadata, idempotency_key
  from mediadock.requests`)
