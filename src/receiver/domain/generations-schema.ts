import {
  boolean,
  check,
  index,
  instant,
  integer,
  jsonb,
  numeric,
  smallint,
  sql,
  text,
  uuid,
} from '../../platform/postgres/drizzle.ts'
import { mediadock } from './base-schema.ts'
import { areNames, isMetadataShallow, isMetadataSmall } from './limits.ts'

/**
 * Submits that came to us: written before the call, so that a crash at any
 * point ends in the same call with the same Idempotency-Key, and one charge.
 */
export const generations = mediadock.table(
  'generations',
  {
    idempotency_key: uuid().primaryKey(),
    state: text({ enum: ['pending', 'submitted', 'refused', 'expired'] })
      .notNull()
      .default('pending'),
    model: text().notNull(),
    input: jsonb().notNull(),
    key_name: text().notNull(),
    /** As it was first said: with another one the provider would take the same key for another generation. */
    webhook_url: text(),
    metadata: jsonb(),
    created_at: instant().notNull(),
    request_id: uuid(),
    cost: numeric(),
    /** When it is posted next; a claim moves it ahead, and `attempts` fences the claim. */
    next_attempt_at: instant(),
    attempts: integer().notNull().default(0),
    /** The first attempt that the provider may have taken without our having heard of it. */
    in_doubt_from: integer(),
    /** Whether a caller was answered 202: then its end is a change of the feed. */
    promised: boolean().notNull().default(false),
    /** The provider's last answer that was not a success (ours where the submit was given up), or why there was none. */
    answer_status: smallint(),
    answer: jsonb(),
    last_error: text(),
  },
  (table) => [
    // As of requests, which take them over: a paid generation must not be refused there.
    check('generations_lengths', areNames('model', 'key_name')),
    check('generations_metadata_size', isMetadataSmall),
    check('generations_metadata_depth', isMetadataShallow),
    index('generations_due')
      .on(table.next_attempt_at)
      .where(sql`state = 'pending'`),
    index('generations_request').on(table.request_id),
  ],
)
