import {
  bigint,
  boolean,
  check,
  customType,
  index,
  integer,
  jsonb,
  numeric,
  pgSchema,
  primaryKey,
  sql,
  text,
  timestamp,
  uniqueIndex,
  uuid,
} from '../../platform/postgres/drizzle.ts'
import { requestStatuses, type Output } from '../../wire/schemas.ts'
import type { EngineChoice, RemoteJob } from './engine-choice.ts'
import type { Faults } from './faults.ts'

const bytea = customType<{ data: Buffer }>({ dataType: () => 'bytea' })
export const instant = <Name extends string>(name: Name) => timestamp(name, { withTimezone: true, mode: 'date' })
const credits = <Name extends string>(name: Name) => numeric(name)

export const environments = ['live', 'sandbox'] as const
export type Environment = (typeof environments)[number]

export const provider = pgSchema('provider')

/** Who pays. `available` is the ledger's sum of that book, kept here so that one row decides a 402. */
export const accounts = provider.table(
  'accounts',
  {
    id: text('id').primaryKey(),
    available: credits('available').notNull().default('0'),
    /** The turns that this account's latest requests took in the two queues (see submit-statement.ts). */
    lastTurn: bigint('last_turn', { mode: 'number' }).notNull().default(0),
    lastSandboxTurn: bigint('last_sandbox_turn', { mode: 'number' }).notNull().default(0),
    createdAt: instant('created_at').notNull(),
  },
  (table) => [
    check('accounts_available_not_negative', sql`available >= 0`),
    index('accounts_last_turn').on(table.lastTurn.desc()),
    index('accounts_last_sandbox_turn').on(table.lastSandboxTurn.desc()),
  ],
)

export const apiKeys = provider.table(
  'api_keys',
  {
    id: uuid('id').primaryKey(),
    accountId: text('account_id')
      .notNull()
      .references(() => accounts.id),
    name: text('name').notNull(),
    environment: text('environment', { enum: environments }).notNull(),
    scopes: text('scopes').array().notNull(),
    /** SHA-256 of the key, which is random enough to need no salt; the key itself is kept nowhere. */
    keyHash: bytea('key_hash').notNull(),
    /** Its last four characters, to tell keys apart on a page. */
    keyHint: text('key_hint').notNull(),
    /** AES-256-GCM under PROVIDER_SECRET_KEY. */
    signingSecret: bytea('signing_secret').notNull(),
    faults: jsonb('faults').$type<Faults>(),
    createdAt: instant('created_at').notNull(),
    revokedAt: instant('revoked_at'),
  },
  (table) => [
    uniqueIndex('api_keys_hash').on(table.keyHash),
    index('api_keys_account').on(table.accountId, table.createdAt),
  ],
)

/** The queue, the state machine and the receipt. Only requests.ts and submit-statement.ts write it. */
export const requests = provider.table(
  'requests',
  {
    id: uuid('id').primaryKey(),
    seq: bigint('seq', { mode: 'number' }).generatedAlwaysAsIdentity(),
    accountId: text('account_id').notNull(),
    apiKeyId: uuid('api_key_id').notNull(),
    environment: text('environment', { enum: environments }).notNull(),
    model: text('model').notNull(),
    input: jsonb('input').notNull(),
    engine: jsonb('engine').$type<EngineChoice>(),
    remoteJob: jsonb('remote_job').$type<RemoteJob>(),
    /** The price, fixed at submit; what was paid is the ledger's to say. */
    cost: credits('cost').notNull(),
    status: text('status', { enum: requestStatuses }).notNull(),
    turn: bigint('turn', { mode: 'number' }),
    progress: integer('progress').notNull().default(0),
    logs: text('logs')
      .array()
      .notNull()
      .default(sql`'{}'`),
    output: jsonb('output').$type<Output>(),
    errorCode: text('error_code'),
    errorMessage: text('error_message'),
    webhookUrl: text('webhook_url'),
    /** The faults set for the sandbox key, as they were at submit. */
    faults: jsonb('faults').$type<Faults>(),
    attempts: integer('attempts').notNull().default(0),
    leaseToken: uuid('lease_token'),
    leaseUntil: instant('lease_until'),
    createdAt: instant('created_at').notNull(),
    startedAt: instant('started_at'),
    completedAt: instant('completed_at'),
  },
  (table) => [
    index('requests_queue')
      .on(table.environment, table.turn, table.seq)
      .where(sql`status = 'IN_QUEUE'`),
    index('requests_running')
      .on(table.environment, table.leaseUntil)
      .where(sql`status = 'IN_PROGRESS'`),
    index('requests_account').on(table.accountId, table.createdAt.desc(), table.id.desc()),
    index('requests_live')
      .on(table.accountId, table.createdAt)
      .where(sql`environment = 'live'`),
  ],
)

/**
 * Double entry: each movement of credits is two rows that sum to zero, so that
 * the whole table does. Books: `issued` (where grants come from), `available`,
 * `reserved`, `settled`.
 */
export const ledgerEntries = provider.table(
  'ledger_entries',
  {
    id: bigint('id', { mode: 'number' }).primaryKey().generatedAlwaysAsIdentity(),
    accountId: text('account_id').notNull(),
    requestId: uuid('request_id'),
    book: text('book', { enum: ['issued', 'available', 'reserved', 'settled'] }).notNull(),
    kind: text('kind', { enum: ['grant', 'reserve', 'settle', 'refund'] }).notNull(),
    amount: credits('amount').notNull(),
    /** Names a grant that must happen once, however often it is repeated. */
    reference: text('reference'),
    createdAt: instant('created_at').notNull(),
  },
  (table) => [
    index('ledger_entries_account').on(table.accountId, table.id.desc()),
    index('ledger_entries_settled')
      .on(table.accountId, table.createdAt)
      .where(sql`book = 'settled'`),
    uniqueIndex('ledger_entries_reserve')
      .on(table.requestId)
      .where(sql`book = 'reserved' and kind = 'reserve'`),
    // A reserve ends once: settled or refunded, never both.
    uniqueIndex('ledger_entries_end')
      .on(table.requestId)
      .where(sql`book = 'reserved' and kind <> 'reserve'`),
    uniqueIndex('ledger_entries_reference')
      .on(table.reference, table.book)
      .where(sql`reference is not null`),
  ],
)

export const idempotencyKeys = provider.table(
  'idempotency_keys',
  {
    accountId: text('account_id').notNull(),
    environment: text('environment', { enum: environments }).notNull(),
    key: uuid('key').notNull(),
    fingerprint: bytea('fingerprint').notNull(),
    requestId: uuid('request_id').notNull(),
    /** What submit answered, to be answered again to a retry. */
    submittedPosition: integer('submitted_position'),
    createdAt: instant('created_at').notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.accountId, table.environment, table.key] }),
    index('idempotency_keys_created').on(table.createdAt),
  ],
)

/** The outbox: one row per completion notification, born in the statement that makes its request terminal, and one per test. */
export const deliveries = provider.table(
  'deliveries',
  {
    /** Sent as X-Service-Webhook-Id, the same in every attempt. */
    id: uuid('id').primaryKey(),
    /** None: a test, which tells of no request. */
    requestId: uuid('request_id'),
    accountId: text('account_id').notNull(),
    apiKeyId: uuid('api_key_id').notNull(),
    url: text('url').notNull(),
    /** Host and port: with the account what parallel attempts are shared by. */
    host: text('host').notNull(),
    /** The bytes of every attempt. */
    body: text('body').notNull(),
    state: text('state', { enum: ['pending', 'delivered', 'failed', 'dropped'] }).notNull(),
    attempts: integer('attempts').notNull().default(0),
    maxAttempts: integer('max_attempts').notNull().default(6),
    /** When the next attempt may start; while one runs, when it may be taken over. */
    dueAt: instant('due_at').notNull(),
    leaseToken: uuid('lease_token'),
    faults: jsonb('faults').$type<Faults>(),
    createdAt: instant('created_at').notNull(),
    settledAt: instant('settled_at'),
  },
  (table) => [
    index('deliveries_due')
      .on(table.accountId, table.host, table.dueAt)
      .where(sql`state = 'pending'`),
    index('deliveries_last_attempt')
      .on(table.dueAt)
      .where(sql`state = 'pending' and attempts >= max_attempts`),
    index('deliveries_request').on(table.requestId),
    index('deliveries_account').on(table.accountId, table.createdAt.desc(), table.id.desc()),
  ],
)

export const deliveryAttempts = provider.table(
  'delivery_attempts',
  {
    deliveryId: uuid('delivery_id').notNull(),
    number: integer('number').notNull(),
    startedAt: instant('started_at').notNull(),
    durationMs: integer('duration_ms').notNull(),
    ok: boolean('ok').notNull(),
    httpStatus: integer('http_status'),
    /** What the receiver answered, cut short, or why there was no answer. */
    detail: text('detail').notNull(),
  },
  (table) => [primaryKey({ columns: [table.deliveryId, table.number] })],
)

/** The calls of the last 60 s, one row a key and one an account (rate-limit.ts). UNLOGGED: after a crash the counts begin anew. */
export const rateWindows = provider.table('rate_windows', {
  id: text('id').primaryKey(),
  /** When, newest first, in milliseconds since 1970: of several calls in one second the last one. */
  atMs: bigint('at_ms', { mode: 'number' }).array().notNull(),
  /** How many then. */
  calls: integer('calls').array().notNull(),
  /** All of them. */
  used: integer('used').notNull(),
  /** What the statement that wrote the row was granted. */
  granted: integer('granted').notNull(),
})

/** Where somebody switched a model on or off; without a row the catalog's own default holds. */
export const modelActivations = provider.table(
  'model_activations',
  {
    environment: text('environment', { enum: environments }).notNull(),
    slug: text('slug').notNull(),
    enabled: boolean('enabled').notNull(),
    updatedAt: instant('updated_at').notNull(),
  },
  (table) => [primaryKey({ columns: [table.environment, table.slug] })],
)
