import {
  bigint,
  boolean,
  bytea,
  check,
  index,
  instant,
  integer,
  jsonb,
  numeric,
  pgSchema,
  primaryKey,
  sql,
  text,
  uniqueIndex,
  uuid,
} from '../../platform/postgres/drizzle.ts'
import { requestStatuses, type Output } from '../../wire/schemas.ts'
import type { EngineChoice, RemoteJob } from './engine-choice.ts'
import type { Faults } from './faults.ts'

export const environments = ['live', 'sandbox'] as const
export type Environment = (typeof environments)[number]

/** The rights of a key. */
export const scopes = ['generate', 'read'] as const
export type Scope = (typeof scopes)[number]

export const provider = pgSchema('provider')

/** Accounts pay for requests. `available` is the sum of the ledger's book of that name: one row decides a 402. */
export const accounts = provider.table(
  'accounts',
  {
    id: text().primaryKey(),
    available: numeric().notNull().default('0'),
    /** The last turn of this account in each of the two queues (submit-statement.ts). */
    last_turn: bigint({ mode: 'number' }).notNull().default(0),
    last_sandbox_turn: bigint({ mode: 'number' }).notNull().default(0),
    created_at: instant().notNull(),
  },
  (table) => [
    check('accounts_available_not_negative', sql`available >= 0`),
    index('accounts_last_turn').on(table.last_turn.desc()),
    index('accounts_last_sandbox_turn').on(table.last_sandbox_turn.desc()),
  ],
)

export const apiKeys = provider.table(
  'api_keys',
  {
    id: uuid().primaryKey(),
    account_id: text()
      .notNull()
      .references(() => accounts.id),
    name: text().notNull(),
    environment: text({ enum: environments }).notNull(),
    scopes: text({ enum: scopes }).array().notNull(),
    /** SHA-256 of the key, which is random enough to need no salt. The key itself is not stored. */
    key_hash: bytea().notNull(),
    /** The last four characters of the key, which distinguish keys on a page. */
    key_hint: text().notNull(),
    /** AES-256-GCM under PROVIDER_SECRET_KEY. */
    signing_secret: bytea().notNull(),
    faults: jsonb().$type<Faults>(),
    created_at: instant().notNull(),
    revoked_at: instant(),
  },
  (table) => [
    uniqueIndex('api_keys_hash').on(table.key_hash),
    index('api_keys_account').on(table.account_id, table.created_at),
  ],
)

/** Requests with their place in the queue, state and result. Only requests.ts and submit-statement.ts write them. */
export const requests = provider.table(
  'requests',
  {
    id: uuid().primaryKey(),
    seq: bigint({ mode: 'number' }).generatedAlwaysAsIdentity(),
    account_id: text().notNull(),
    api_key_id: uuid().notNull(),
    environment: text({ enum: environments }).notNull(),
    model: text().notNull(),
    input: jsonb().notNull(),
    engine: jsonb().$type<EngineChoice>(),
    remote_job: jsonb().$type<RemoteJob>(),
    /** The price, fixed at submit. The ledger records what was paid. */
    cost: numeric().notNull(),
    status: text({ enum: requestStatuses }).notNull(),
    turn: bigint({ mode: 'number' }),
    progress: integer().notNull().default(0),
    logs: text()
      .array()
      .notNull()
      .default(sql`'{}'`),
    output: jsonb().$type<Output>(),
    error_code: text(),
    error_message: text(),
    webhook_url: text(),
    /** The sandbox key's faults at the time of the submit. */
    faults: jsonb().$type<Faults>(),
    attempts: integer().notNull().default(0),
    /** The lease (platform/postgres/lease.ts) of the worker that runs the request. */
    claims: integer().notNull().default(0),
    lease_until: instant(),
    /** Written only by the previous version. */
    lease_token: uuid(),
    created_at: instant().notNull(),
    started_at: instant(),
    completed_at: instant(),
  },
  (table) => [
    index('requests_queue')
      .on(table.environment, table.turn, table.seq)
      .where(sql`status = 'IN_QUEUE'`),
    index('requests_running')
      .on(table.environment, table.lease_until)
      .where(sql`status = 'IN_PROGRESS'`),
    index('requests_created').on(table.created_at.desc(), table.id.desc()),
    index('requests_account').on(table.account_id, table.created_at.desc(), table.id.desc()),
    index('requests_live')
      .on(table.account_id, table.created_at)
      .where(sql`environment = 'live'`),
  ],
)

/**
 * Double-entry bookkeeping: each movement of credits is two rows that sum to zero. Books: `issued` (where granted
 * credits come from), `available`, `reserved`, `settled`.
 */
export const ledgerEntries = provider.table(
  'ledger_entries',
  {
    id: bigint({ mode: 'number' }).primaryKey().generatedAlwaysAsIdentity(),
    account_id: text().notNull(),
    request_id: uuid(),
    book: text({ enum: ['issued', 'available', 'reserved', 'settled'] }).notNull(),
    kind: text({ enum: ['grant', 'reserve', 'settle', 'refund'] }).notNull(),
    amount: numeric().notNull(),
    /** Identifies a grant that must happen only once. */
    reference: text(),
    created_at: instant().notNull(),
  },
  (table) => [
    index('ledger_entries_account').on(table.account_id, table.id.desc()),
    index('ledger_entries_settled')
      .on(table.account_id, table.created_at)
      .where(sql`book = 'settled'`),
    uniqueIndex('ledger_entries_reserve')
      .on(table.request_id)
      .where(sql`book = 'reserved' and kind = 'reserve'`),
    // A reserve ends once: settled or refunded.
    uniqueIndex('ledger_entries_end')
      .on(table.request_id)
      .where(sql`book = 'reserved' and kind <> 'reserve'`),
    uniqueIndex('ledger_entries_reference')
      .on(table.reference, table.book)
      .where(sql`reference is not null`),
  ],
)

export const idempotencyKeys = provider.table(
  'idempotency_keys',
  {
    account_id: text().notNull(),
    environment: text({ enum: environments }).notNull(),
    key: uuid().notNull(),
    fingerprint: bytea().notNull(),
    request_id: uuid().notNull(),
    /** The queue position in the first answer, for retries. */
    submitted_position: integer(),
    created_at: instant().notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.account_id, table.environment, table.key] }),
    index('idempotency_keys_created').on(table.created_at),
  ],
)

/** The outbox: one row per completion notification, written by the statement that ends its request. */
export const deliveries = provider.table(
  'deliveries',
  {
    /** Sent as X-Service-Webhook-Id, the same in every attempt. */
    id: uuid().primaryKey(),
    /** Null in rows that an earlier version wrote for a test. */
    request_id: uuid(),
    account_id: text().notNull(),
    api_key_id: uuid().notNull(),
    url: text().notNull(),
    /** Host and port. Parallel attempts are divided among accounts, and among the hosts of each account. */
    host: text().notNull(),
    /** The bytes of every attempt. */
    body: text().notNull(),
    state: text({ enum: ['pending', 'delivered', 'failed', 'dropped'] }).notNull(),
    attempts: integer().notNull().default(0),
    max_attempts: integer().notNull().default(6),
    /** When the next attempt may start. During an attempt, the end of its lease. */
    due_at: instant().notNull(),
    /** Written only by the previous version. */
    lease_token: uuid(),
    faults: jsonb().$type<Faults>(),
    created_at: instant().notNull(),
    settled_at: instant(),
  },
  (table) => [
    index('deliveries_due')
      .on(table.account_id, table.host, table.due_at)
      .where(sql`state = 'pending'`),
    index('deliveries_last_attempt')
      .on(table.due_at)
      .where(sql`state = 'pending' and attempts >= max_attempts`),
    index('deliveries_request').on(table.request_id),
    index('deliveries_created').on(table.created_at.desc(), table.id.desc()),
    index('deliveries_account').on(table.account_id, table.created_at.desc(), table.id.desc()),
  ],
)

export const deliveryAttempts = provider.table(
  'delivery_attempts',
  {
    delivery_id: uuid().notNull(),
    number: integer().notNull(),
    started_at: instant().notNull(),
    duration_ms: integer().notNull(),
    ok: boolean().notNull(),
    http_status: integer(),
    /** The beginning of the receiver's answer, or the reason why there was none. */
    detail: text().notNull(),
  },
  (table) => [primaryKey({ columns: [table.delivery_id, table.number] })],
)

/**
 * The latest calls, one row per key and per account (rate-limit.ts). UNLOGGED: a crash of Postgres clears the counts.
 */
export const rateWindows = provider.table('rate_windows', {
  id: text().primaryKey(),
  /**
   * Times of calls, newest first, in milliseconds since 1970. Calls within one second have the time of the last one.
   */
  at_ms: bigint({ mode: 'number' }).array().notNull(),
  /** Number of calls at each time. */
  calls: integer().array().notNull(),
  /** Number of all calls. */
  used: integer().notNull(),
  /** Number of calls granted to the last statement. */
  granted: integer().notNull(),
})

/** Models that an operator enabled or disabled. Without a row, the catalog's default applies. */
export const modelActivations = provider.table(
  'model_activations',
  {
    environment: text({ enum: environments }).notNull(),
    slug: text().notNull(),
    enabled: boolean().notNull(),
    updated_at: instant().notNull(),
  },
  (table) => [primaryKey({ columns: [table.environment, table.slug] })],
)
