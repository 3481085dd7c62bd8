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

/** How an HTTP arrival was answered. `hint`: 200, for an unsigned webhook, of which nothing but this row is kept. */
export const arrivalOutcomes = ['accepted', 'duplicate', 'parked', 'hint', 'refused', 'unavailable'] as const

/**
 * One row per HTTP arrival, partitioned by day (see the migration). Refused arrivals carry the id that they state.
 */
export const arrivals = mediadock.table(
  'arrivals',
  {
    id: bigserial({ mode: 'number' }).notNull(),
    arrived_at: instant().notNull(),
    outcome: text({ enum: arrivalOutcomes }).notNull(),
    reason: text(),
    status: smallint().notNull(),
    webhook_id: text(),
    /** The stored delivery, or the id that an unstored one would have. */
    delivery_id: uuid(),
    request_id: uuid(),
    key_name: text(),
    /** The source of the path; null for the default source. */
    source_name: text(),
    remote: text(),
    bytes: integer(),
    /** Receiver's clock minus the signed time. */
    skew_seconds: integer(),
    ack_ms: real().notNull(),
    /** The number of similar arrivals that this row counts besides itself. It bounds the log under a flood. */
    folded: integer().notNull().default(0),
  },
  (table) => [
    primaryKey({ columns: [table.arrived_at, table.id] }),
    // The arrivals of one delivery.
    index('arrivals_delivery').on(table.delivery_id),
    // Rows with the outcome `accepted`, the great majority, are in none of the next three indexes. They serve lists and
    // counts by outcome and reason, and the arrivals of a request without a stored delivery.
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
 * The number of arrivals in each minute of the last hour. A trigger on the log counts them, so no reader has to scan
 * the log. The trigger also counts rows that an older release writes.
 */
export const arrivalCounts = mediadock.table(
  'arrival_counts',
  {
    minute: instant().notNull(),
    outcome: text().notNull(),
    /** Empty for arrivals without a reason. */
    reason: text().notNull(),
    /** Includes the arrivals that a row of the log counts (`folded`). */
    arrivals: bigint({ mode: 'number' }).notNull(),
  },
  (table) => [primaryKey({ columns: [table.minute, table.outcome, table.reason] })],
)

/** Refused arrivals, kept whole. They can be verified again after a missing secret is added. */
export const quarantine = mediadock.table(
  'quarantine',
  {
    id: bigserial({ mode: 'number' }).primaryKey(),
    arrived_at: instant().notNull(),
    reason: text().notNull(),
    webhook_id: text(),
    /** The id that the body states. It is not trusted. */
    request_id: uuid(),
    /** Includes the signature, which no answer and no page shows. */
    headers: jsonb().$type<Record<string, string>>().notNull(),
    body: bytea().notNull(),
    /** Size of body and headers, stored so that the size of the table can be summed without reading either. */
    bytes: integer().generatedAlwaysAs(sql`octet_length(body) + octet_length(headers::text)`),
    /** The sender (no API), see senderOf(). No sender may use the room of all others. */
    source: text(),
  },
  (table) => [
    index('quarantine_arrived').on(table.arrived_at.desc(), table.id.desc()),
    // Refused arrivals by the request that they state.
    index('quarantine_request')
      .on(table.request_id)
      .where(sql`request_id is not null`),
  ],
)

/** The senders of recent authentic deliveries: see intake/quarantine.ts. */
export const knownSenders = mediadock.table(
  'known_senders',
  {
    key_name: text().notNull(),
    /** The same value as in the quarantine, see senderOf(). */
    source: text().notNull(),
    last_at: instant().notNull(),
  },
  (table) => [primaryKey({ columns: [table.key_name, table.source] })],
)
