import {
  bigint,
  bigserial,
  index,
  integer,
  jsonb,
  primaryKey,
  real,
  smallint,
  sql,
  text,
  uuid,
} from '../../platform/postgres/drizzle.ts'
import { bytea, instant, mediadock } from './base-schema.ts'

/** One row per HTTP arrival, partitioned by day (see the migration); refused ones under the id they claimed. */
export const arrivals = mediadock.table(
  'arrivals',
  {
    id: bigserial('id', { mode: 'number' }).notNull(),
    arrivedAt: instant('arrived_at').notNull(),
    outcome: text('outcome').notNull(),
    reason: text('reason'),
    status: smallint('status').notNull(),
    webhookId: text('webhook_id'),
    /** Of the delivery that it is, or would have been. */
    deliveryId: uuid('delivery_id'),
    requestId: uuid('request_id'),
    keyName: text('key_name'),
    remote: text('remote'),
    bytes: integer('bytes'),
    /** Our clock minus the signed time. */
    skewSeconds: integer('skew_seconds'),
    ackMs: real('ack_ms').notNull(),
    /** How many like arrivals this row stands for besides itself: the log is bounded under a flood. */
    folded: integer('folded').notNull().default(0),
  },
  (table) => [
    primaryKey({ columns: [table.arrivedAt, table.id] }),
    // How often and how a delivery came.
    index('arrivals_delivery').on(table.deliveryId),
    // What is accepted, as nearly everything is, writes to none of these: lists and counts by outcome and reason, and the
    // arrivals of a request that nothing was stored of.
    index('arrivals_outcome')
      .on(table.outcome, table.arrivedAt, table.id)
      .where(sql`outcome <> 'accepted'`),
    index('arrivals_unstored')
      .on(table.requestId)
      .where(sql`outcome = 'unavailable'`),
    index('arrivals_reason')
      .on(table.reason, table.arrivedAt, table.id)
      .where(sql`reason is not null`),
  ],
)

/**
 * How many arrived in each minute of the last hour: a trigger counts what is written to the log, so that nobody has to
 * read it for that, and so that the version before, which knows nothing of this, is counted too.
 */
export const arrivalCounts = mediadock.table(
  'arrival_counts',
  {
    minute: instant('minute').notNull(),
    outcome: text('outcome').notNull(),
    /** Empty where there is none. */
    reason: text('reason').notNull(),
    /** Those that a row stands for included. */
    arrivals: bigint('arrivals', { mode: 'number' }).notNull(),
  },
  (table) => [primaryKey({ columns: [table.minute, table.outcome, table.reason] })],
)

/** Refused arrivals, whole, so that they can be verified again once a missing secret is there. */
export const quarantine = mediadock.table(
  'quarantine',
  {
    id: bigserial('id', { mode: 'number' }).primaryKey(),
    arrivedAt: instant('arrived_at').notNull(),
    reason: text('reason').notNull(),
    webhookId: text('webhook_id'),
    /** As its body claims; nothing of it is trusted. */
    requestId: uuid('request_id'),
    /** With the signature, which no answer or page ever shows. */
    headers: jsonb('headers').$type<Record<string, string>>().notNull(),
    body: bytea('body').notNull(),
    /** Of body and headers, so that weighing the table reads neither. */
    bytes: integer('bytes').generatedAlwaysAs(sql`octet_length(body) + octet_length(headers::text)`),
    /** Who sent it, see sourceOf(): no sender takes the room of all others. */
    source: text('source'),
  },
  (table) => [
    index('quarantine_arrived').on(table.arrivedAt.desc(), table.id.desc()),
    // Where somebody asks for a request that never landed.
    index('quarantine_request')
      .on(table.requestId)
      .where(sql`request_id is not null`),
  ],
)

/** From where deliveries came that were authentic, lately: see known-senders.ts. */
export const knownSenders = mediadock.table(
  'known_senders',
  {
    keyName: text('key_name').notNull(),
    /** As in the quarantine, see sourceOf(). */
    source: text('source').notNull(),
    lastAt: instant('last_at').notNull(),
  },
  (table) => [primaryKey({ columns: [table.keyName, table.source] })],
)
