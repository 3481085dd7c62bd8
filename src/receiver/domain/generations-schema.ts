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
import { areNames } from './limits.ts'

/**
 * Submits through the receiver. The row is written before the call. After a crash at any point the same call is made
 * with the same Idempotency-Key, so there is one charge.
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
    /** Of that key when the intent was written; null on rows of releases that did not store it. */
    sandbox: boolean(),
    /** The source of that key; null for the first source. */
    source_name: text(),
    /** Never changed after the first write. The provider would treat another URL as reuse of the key (409). */
    webhook_url: text(),
    metadata: jsonb(),
    created_at: instant().notNull(),
    request_id: uuid(),
    cost: numeric(),
    /** The time of the next call. A claim moves it to the end of the lease, and `attempts` fences the claim. */
    next_attempt_at: instant(),
    attempts: integer().notNull().default(0),
    /** The first attempt whose answer was lost, so the provider may have accepted it. */
    in_doubt_from: integer(),
    /** True if a caller was answered 202. The end of the submit is then a change in the feed. */
    promised: boolean().notNull().default(false),
    /** The provider's last answer that was no success, or the receiver's own for an expired submit. */
    answer_status: smallint(),
    answer: jsonb(),
    /** When the provider last refused it; null on rows of releases that did not store it. */
    refused_at: instant(),
    /** Why the last call got no usable answer. */
    last_error: text(),
  },
  (table) => [
    // The limits equal those of `requests`, which takes the values over: it must not refuse a paid generation.
    check('generations_lengths', areNames('model', 'key_name')),
    index('generations_due')
      .on(table.next_attempt_at)
      .where(sql`state = 'pending'`),
    // The submits that were refused of late.
    index('generations_refused')
      .on(table.refused_at)
      .where(sql`state = 'refused'`),
    index('generations_request').on(table.request_id),
  ],
)
