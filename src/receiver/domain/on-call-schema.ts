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

// What stands beside the way of a delivery: the budget of calls, and how things went, for the on-call.

/** Each poll of a request, by whatever part of us; see poll-log.ts. */
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

/** Runs of the reconciler. Idle ones, one after the other, share a row: it says that the reconciler lives, and since when it has nothing to do. */
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
  /** How many of the calls were answered 429. */
  rate_limited: integer().notNull().default(0),
  error: text(),
})

export const audit = auditTable(mediadock, (table) => [index('audit_at').on(table.at.desc(), table.id.desc())])

/** What each minute was like, for charts: see minutes.ts. */
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
  /** The most that was seen in this minute. */
  inbox_pending: integer(),
  inbox_oldest_seconds: real(),
  overdue: integer(),
})

/** Starts of receivers: marks on the charts. */
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

/** When the secret of each key was the one that matched, first and last; see key-uses.ts. */
export const keyUses = mediadock.table('key_uses', {
  key_name: text().primaryKey(),
  first_match_at: instant().notNull(),
  last_match_at: instant().notNull(),
  matches: bigint({ mode: 'number' }).notNull(),
})

export const sessions = sessionsTable(mediadock)

/** What is or was wrong, of one cause from its beginning to its end: see issues.ts. */
export const issues = mediadock.table(
  'issues',
  {
    id: bigserial({ mode: 'number' }).primaryKey(),
    /** As the problem has it: a kind, or `kind:what`. */
    cause: text().notNull(),
    /** How bad, in words, and how many: as it was seen last. */
    severity: text({ enum: ['critical', 'warning', 'notice'] }).notNull(),
    text: text().notNull(),
    href: text().notNull(),
    count: integer(),
    /** The most at once. */
    peak: integer(),
    /** The most of each `sample_seconds` since it opened, null where nobody counted: few enough for a small picture. */
    samples: integer()
      .array()
      .notNull()
      .default(sql`'{}'`),
    sample_seconds: integer().notNull().default(10),
    /** Who or what it is about: keys, senders. */
    affected: text()
      .array()
      .notNull()
      .default(sql`'{}'`),
    opened_at: instant().notNull(),
    seen_at: instant().notNull(),
    worsened_at: instant(),
    closed_at: instant(),
    /** Somebody knows of it, and wants to hear of it again only after this. */
    muted_until: instant(),
    muted_by: text(),
    /** What ALERT_WEBHOOK_URL has not been told yet, when it is tried next, and how often it was. */
    untold: text({ enum: ['opened', 'worsened', 'closed'] }),
    tell_at: instant(),
    tell_tries: smallint().notNull().default(0),
    /** How many it was when it was told last: it is told again when it is twice as many. */
    told_count: integer(),
  },
  (table) => [
    // Of one cause there is one at a time, whichever replica sees it.
    uniqueIndex('issues_open')
      .on(table.cause)
      .where(sql`closed_at is null`),
    index('issues_opened').on(table.opened_at.desc(), table.id.desc()),
    index('issues_untold')
      .on(table.tell_at)
      .where(sql`untold is not null`),
  ],
)

/** Replays of many deliveries, started from the console. Their progress follows from `inbox` and `attempts`. */
export const replays = mediadock.table('replays', {
  id: uuid().primaryKey(),
  started_at: instant().notNull(),
  actor: text().notNull(),
  /** As in the address of the list. */
  filters: jsonb().$type<Record<string, string>>().notNull(),
  /** How many deliveries the filters chose. */
  count: integer().notNull(),
  /** How many of them the replay put back into the inbox. The others were waiting there already. */
  requeued: integer().notNull().default(0),
})

/** Written by the version before only; the next migration drops it. */
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
