import {
  boolean,
  check,
  index,
  integer,
  jsonb,
  numeric,
  smallint,
  sql,
  text,
  uuid,
} from '../../platform/postgres/drizzle.ts'
import { instant, mediadock } from './base-schema.ts'
import { areNames, isMetadataShallow, isMetadataSmall } from './limits.ts'

/**
 * Submits that came to us: written before the call, so that a crash at any
 * point ends in the same call with the same Idempotency-Key, and one charge.
 */
export const generations = mediadock.table(
  'generations',
  {
    idempotencyKey: uuid('idempotency_key').primaryKey(),
    state: text('state', { enum: ['pending', 'submitted', 'refused', 'expired'] })
      .notNull()
      .default('pending'),
    model: text('model').notNull(),
    input: jsonb('input').notNull(),
    keyName: text('key_name').notNull(),
    /** As it was first said: with another one the provider would take the same key for another generation. */
    webhookUrl: text('webhook_url'),
    metadata: jsonb('metadata'),
    createdAt: instant('created_at').notNull(),
    requestId: uuid('request_id'),
    cost: numeric('cost'),
    /** When it is posted next; a claim moves it ahead, and `attempts` fences the claim. */
    nextAttemptAt: instant('next_attempt_at'),
    attempts: integer('attempts').notNull().default(0),
    /** The first attempt that the provider may have taken without our having heard of it. */
    inDoubtFrom: integer('in_doubt_from'),
    /** Whether a caller was answered 202: then its end is a change of the feed. */
    promised: boolean('promised').notNull().default(false),
    /** The provider's last answer that was not a success (ours where the submit was given up), or why there was none. */
    answerStatus: smallint('answer_status'),
    answer: jsonb('answer'),
    lastError: text('last_error'),
  },
  (table) => [
    // As of requests, which take them over: a paid generation must not be refused there.
    check('generations_lengths', areNames('model', 'key_name')),
    check('generations_metadata_size', isMetadataSmall),
    check('generations_metadata_depth', isMetadataShallow),
    index('generations_due')
      .on(table.nextAttemptAt)
      .where(sql`state = 'pending'`),
    index('generations_request').on(table.requestId),
  ],
)
