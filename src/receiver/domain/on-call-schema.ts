import { auditTable, sessionsTable } from '../../platform/pages/tables.ts'
import {
  bigint,
  bigserial,
  boolean,
  index,
  instant,
  integer,
  jsonb,
  primaryKey,
  real,
  smallint,
  sql,
  text,
  uniqueIndex,
  uuid,
} from '../../platform/postgres/drizzle.ts'
import { mediadock } from './base-schema.ts'

// Tables for on-call engineers. Landing and acknowledging do not read them.

/** One row per answered call for a result. A poll makes up to five, with different keys: see poll-log.ts. */
export const polls = mediadock.table(
  'polls',
  {
    request_id: uuid().notNull(),
    polled_at: instant().notNull(),
    key_name: text().notNull(),
    outcome: text().notNull(),
    detail: text(),
  },
  (table) => [
    primaryKey({ columns: [table.request_id, table.polled_at, table.key_name] }),
    index('polls_age').using('brin', table.polled_at),
  ],
)

/**
 * Runs of the reconciler. Consecutive idle runs share one row, which shows that the reconciler runs and since when it
 * is idle.
 */
export const reconcileRuns = mediadock.table('reconcile_runs', {
  id: bigserial({ mode: 'number' }).primaryKey(),
  started_at: instant().notNull(),
  ended_at: instant().notNull(),
  trigger: text({ enum: ['cron', 'manual'] }).notNull(),
  outcome: text({ enum: ['ok', 'idle', 'error'] }).notNull(),
  idle_runs: integer().notNull().default(0),
  scanned: integer().notNull().default(0),
  landed: integer().notNull().default(0),
  running: integer().notNull().default(0),
  not_found: integer().notNull().default(0),
  failed: integer().notNull().default(0),
  postponed: integer().notNull().default(0),
  /** How many calls were answered 429. */
  rate_limited: integer().notNull().default(0),
  error: text(),
})

export const audit = auditTable(mediadock, (table) => [index('audit_at').on(table.at.desc(), table.id.desc())])

/** Figures of each minute, for charts: see minutes.ts. */
export const minutes = mediadock.table('minutes', {
  minute: instant().primaryKey(),
  written_at: instant().notNull(),
  /** Arrivals by `outcome` or `outcome/reason`. */
  arrivals: jsonb().$type<Record<string, number>>().notNull(),
  ack_p50_ms: real(),
  ack_p95_ms: real(),
  landed: integer().notNull(),
  landing_p50_seconds: real(),
  landing_p95_seconds: real(),
  /** The highest value of the minute, as in the next two columns. */
  inbox_pending: integer(),
  inbox_oldest_seconds: real(),
  overdue: integer(),
})

/** Starts of receivers, for marks on charts. */
export const processStarts = mediadock.table(
  'process_starts',
  {
    started_at: instant().notNull(),
    host: text().notNull(),
    pid: integer().notNull(),
    version: text().notNull(),
  },
  (table) => [primaryKey({ columns: [table.started_at, table.host, table.pid] })],
)

/** One row per key: how many signatures its secret has matched, and when first and last. See arrival-log.ts. */
export const keyUses = mediadock.table('key_uses', {
  key_name: text().primaryKey(),
  first_match_at: instant().notNull(),
  last_match_at: instant().notNull(),
  matches: bigint({ mode: 'number' }).notNull(),
})

export const sessions = sessionsTable(mediadock)

/** Problems from beginning to end, one open issue per cause: see issues.ts. */
export const issues = mediadock.table(
  'issues',
  {
    id: bigserial({ mode: 'number' }).primaryKey(),
    /** The cause of the problem: a kind, or `kind:subject`. */
    cause: text().notNull(),
    /** Severity, text and count, as last seen. */
    severity: text({ enum: ['critical', 'warning', 'notice'] }).notNull(),
    text: text().notNull(),
    href: text().notNull(),
    count: integer(),
    /** The highest count so far. */
    peak: integer(),
    /** Counts over time of an earlier version. Neither is read or written any more. */
    samples: integer().array().notNull().default([]),
    sample_seconds: integer().notNull().default(10),
    /** The keys, senders, roles, subscriptions or requests concerned. */
    affected: text().array().notNull().default([]),
    opened_at: instant().notNull(),
    seen_at: instant().notNull(),
    worsened_at: instant(),
    closed_at: instant(),
    /** No notification before this time, unless the issue becomes more severe. */
    muted_until: instant(),
    muted_by: text(),
    /**
     * The notification that is still to be posted to ALERT_WEBHOOK_URL, the time of the next try, and the tries so far.
     */
    untold: text({ enum: ['opened', 'worsened', 'closed'] }),
    tell_at: instant(),
    tell_tries: smallint().notNull().default(0),
    /** The count in the last notification. Twice that count, and at least 10, is a reason to notify again. */
    told_count: integer(),
  },
  (table) => [
    // At most one open issue per cause, over all replicas.
    uniqueIndex('issues_open')
      .on(table.cause)
      .where(sql`closed_at is null`),
    index('issues_opened').on(table.opened_at.desc(), table.id.desc()),
    index('issues_untold')
      .on(table.tell_at)
      .where(sql`untold is not null`),
  ],
)

/** Replays of many deliveries, started from the console. Their progress is derived from `inbox` and `attempts`. */
export const replays = mediadock.table('replays', {
  id: uuid().primaryKey(),
  started_at: instant().notNull(),
  actor: text().notNull(),
  /** The filters as in the address of the list. */
  filters: jsonb().$type<Record<string, string>>().notNull(),
  /** How many deliveries the filters selected. */
  count: integer().notNull(),
  /** How many deliveries the replay put back into the inbox. The others were already pending. */
  requeued: integer().notNull().default(0),
})

/** No longer used. A migration may drop it once no running version uses it. */
export const replayJobs = mediadock.table(
  'replay_jobs',
  {
    id: uuid().primaryKey(),
    started_at: instant().notNull(),
    actor: text().notNull(),
    filters: jsonb().$type<Record<string, string>>().notNull(),
    count: integer().notNull(),
    state: text().notNull(),
    ended_at: instant(),
    stopping: boolean().notNull().default(false),
    cursor: text(),
    replayed: integer().notNull().default(0),
    changed: integer().notNull().default(0),
    failed: integer().notNull().default(0),
    changes: jsonb().$type<unknown[]>().notNull().default([]),
    failures: jsonb().$type<unknown[]>().notNull().default([]),
    problem: text(),
    leased_until: instant().notNull(),
    claims: integer().notNull().default(0),
  },
  (table) => [
    index('replay_jobs_running')
      .on(table.leased_until)
      .where(sql`state = 'running'`),
  ],
)
