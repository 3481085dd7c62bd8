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
 * with the same Idempotency-Key, so there is one charge. A source that ignores that key is not called again.
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
    /** The environment of the key: see environment.ts. */
    sandbox: boolean(),
    /** The source of that key; null for the default source. */
    source_name: text(),
    /** Kept while an earlier call may have been accepted: with another URL the provider would answer 409. */
    webhook_url: text(),
    metadata: jsonb(),
    created_at: instant().notNull(),
    request_id: uuid(),
    cost: numeric(),
    /** The time of the next call. A claim moves it to the end of the lease, and `attempts` fences the claim. */
    next_attempt_at: instant(),
    attempts: integer().notNull().default(0),
    /** The first attempt that the provider may have accepted: without a final answer, or not called yet. */
    in_doubt_from: integer(),
    /** True if a caller was answered 202. The end of the submit is then a change in the feed. */
    promised: boolean().notNull().default(false),
    /** The provider's refusal. For an expired submit, the receiver's own answer, without a status. */
    answer_status: smallint(),
    answer: jsonb(),
    /** When the provider last refused the submit; null on rows of releases that did not store it. */
    refused_at: instant(),
    /** Why the last attempt failed. */
    last_error: text(),
  },
  (table) => [
    // The limits equal those of `requests`, which must not refuse the values of a paid generation.
    check('generations_lengths', areNames('model', 'key_name')),
    index('generations_due')
      .on(table.next_attempt_at)
      .where(sql`state = 'pending'`),
    // Recently refused submits.
    index('generations_refused')
      .on(table.refused_at)
      .where(sql`state = 'refused'`),
    index('generations_request').on(table.request_id),
  ],
)
