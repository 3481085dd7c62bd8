import {
  bigint,
  bigserial,
  bytea,
  index,
  instant,
  integer,
  jsonb,
  primaryKey,
  real,
  smallint,
  sql,
  text,
  uuid,
} from '../../platform/postgres/drizzle.ts'
import { mediadock } from './base-schema.ts'

/** How an HTTP arrival was answered. */
export const arrivalOutcomes = ['accepted', 'duplicate', 'parked', 'refused', 'unavailable'] as const

/** One row per HTTP arrival, partitioned by day (see the migration); refused ones under the id they claimed. */
export const arrivals = mediadock.table(
  'arrivals',
  {
    id: bigserial({ mode: 'number' }).notNull(),
    arrived_at: instant().notNull(),
    outcome: text({ enum: arrivalOutcomes }).notNull(),
    reason: text(),
    status: smallint().notNull(),
    webhook_id: text(),
    /** Of the delivery that it is, or would have been. */
    delivery_id: uuid(),
    request_id: uuid(),
    key_name: text(),
    remote: text(),
    bytes: integer(),
    /** Our clock minus the signed time. */
    skew_seconds: integer(),
    ack_ms: real().notNull(),
    /** How many like arrivals this row stands for besides itself: the log is bounded under a flood. */
    folded: integer().notNull().default(0),
  },
  (table) => [
    primaryKey({ columns: [table.arrived_at, table.id] }),
    // How often and how a delivery came.
    index('arrivals_delivery').on(table.delivery_id),
    // What is accepted, as nearly everything is, writes to none of these: lists and counts by outcome and reason, and the
    // arrivals of a request that nothing was stored of.
    index('arrivals_outcome')
      .on(table.outcome, table.arrived_at, table.id)
      .where(sql`outcome <> 'accepted'`),
    index('arrivals_unstored')
      .on(table.request_id)
      .where(sql`outcome = 'unavailable'`),
    index('arrivals_reason')
      .on(table.reason, table.arrived_at, table.id)
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
    minute: instant().notNull(),
    outcome: text().notNull(),
    /** Empty where there is none. */
    reason: text().notNull(),
    /** Those that a row stands for included. */
    arrivals: bigint({ mode: 'number' }).notNull(),
  },
  (table) => [primaryKey({ columns: [table.minute, table.outcome, table.reason] })],
)

/** Refused arrivals, whole, so that they can be verified again once a missing secret is there. */
export const quarantine = mediadock.table(
  'quarantine',
  {
    id: bigserial({ mode: 'number' }).primaryKey(),
    arrived_at: instant().notNull(),
    reason: text().notNull(),
    webhook_id: text(),
    /** As its body claims; nothing of it is trusted. */
    request_id: uuid(),
    /** With the signature, which no answer or page ever shows. */
    headers: jsonb().$type<Record<string, string>>().notNull(),
    body: bytea().notNull(),
    /** Of body and headers, so that weighing the table reads neither. */
    bytes: integer().generatedAlwaysAs(sql`octet_length(body) + octet_length(headers::text)`),
    /** Who sent it, see sourceOf(): no sender takes the room of all others. */
    source: text(),
  },
  (table) => [
    index('quarantine_arrived').on(table.arrived_at.desc(), table.id.desc()),
    // Where somebody asks for a request that never landed.
    index('quarantine_request')
      .on(table.request_id)
      .where(sql`request_id is not null`),
  ],
)

/** From where deliveries came that were authentic, lately: see known-senders.ts. */
export const knownSenders = mediadock.table(
  'known_senders',
  {
    key_name: text().notNull(),
    /** As in the quarantine, see sourceOf(). */
    source: text().notNull(),
    last_at: instant().notNull(),
  },
  (table) => [primaryKey({ columns: [table.key_name, table.source] })],
)
