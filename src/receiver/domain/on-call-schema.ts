import {
  bigint,
  bigserial,
  boolean,
  index,
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
import { instant, mediadock } from './base-schema.ts'

// What stands beside the way of a delivery: the budget of calls, and how things went, for the on-call.

/** Each poll of a request, by whatever part of us; see poll-log.ts. */
export const polls = mediadock.table(
  'polls',
  {
    requestId: uuid('request_id').notNull(),
    polledAt: instant('polled_at').notNull(),
    keyName: text('key_name').notNull(),
    outcome: text('outcome').notNull(),
    detail: text('detail'),
  },
  (table) => [
    primaryKey({ columns: [table.requestId, table.polledAt, table.keyName] }),
    index('polls_age').using('brin', table.polledAt),
  ],
)

/** Runs of the reconciler. Idle ones, one after the other, share a row: it says that the reconciler lives, and since when it has nothing to do. */
export const reconcileRuns = mediadock.table('reconcile_runs', {
  id: bigserial('id', { mode: 'number' }).primaryKey(),
  startedAt: instant('started_at').notNull(),
  endedAt: instant('ended_at').notNull(),
  trigger: text('trigger', { enum: ['cron', 'manual'] }).notNull(),
  outcome: text('outcome', { enum: ['ok', 'idle', 'error'] }).notNull(),
  idleRuns: integer('idle_runs').notNull().default(0),
  scanned: integer('scanned').notNull().default(0),
  landed: integer('landed').notNull().default(0),
  running: integer('running').notNull().default(0),
  notFound: integer('not_found').notNull().default(0),
  failed: integer('failed').notNull().default(0),
  postponed: integer('postponed').notNull().default(0),
  /** How many of the calls were answered 429. */
  rateLimited: integer('rate_limited').notNull().default(0),
  error: text('error'),
})

/** Who did what from the console, the API and the command line. */
export const audit = mediadock.table(
  'audit',
  {
    id: bigserial('id', { mode: 'number' }).primaryKey(),
    at: instant('at').notNull(),
    via: text('via', { enum: ['console', 'api', 'cli'] }).notNull(),
    /** The name given at the sign-in, else the remote address; user@host for the command line. */
    actor: text('actor').notNull(),
    action: text('action').notNull(),
    target: text('target'),
    detail: jsonb('detail').$type<Record<string, unknown>>(),
  },
  (table) => [index('audit_at').on(table.at.desc(), table.id.desc())],
)

/** What each minute was like, for charts: see minutes.ts. */
export const minutes = mediadock.table('minutes', {
  minute: instant('minute').primaryKey(),
  writtenAt: instant('written_at').notNull(),
  /** Arrivals by `outcome` or `outcome/reason`. */
  arrivals: jsonb('arrivals').$type<Record<string, number>>().notNull(),
  ackP50Ms: real('ack_p50_ms'),
  ackP95Ms: real('ack_p95_ms'),
  landed: integer('landed').notNull(),
  landingP50Seconds: real('landing_p50_seconds'),
  landingP95Seconds: real('landing_p95_seconds'),
  /** The most that was seen in this minute. */
  inboxPending: integer('inbox_pending'),
  inboxOldestSeconds: real('inbox_oldest_seconds'),
  overdue: integer('overdue'),
})

/** Starts of receivers: marks on the charts. */
export const processStarts = mediadock.table(
  'process_starts',
  {
    startedAt: instant('started_at').notNull(),
    host: text('host').notNull(),
    pid: integer('pid').notNull(),
    version: text('version').notNull(),
  },
  (table) => [primaryKey({ columns: [table.startedAt, table.host, table.pid] })],
)

/** When the secret of each key was the one that matched, first and last; see key-uses.ts. */
export const keyUses = mediadock.table('key_uses', {
  keyName: text('key_name').primaryKey(),
  firstMatchAt: instant('first_match_at').notNull(),
  lastMatchAt: instant('last_match_at').notNull(),
  matches: bigint('matches', { mode: 'number' }).notNull(),
})

/** Who is signed in to the console, by the HMAC of their cookie under INTERNAL_TOKEN: see sessions.ts. */
export const sessions = mediadock.table('sessions', {
  id: text('id').primaryKey(),
  name: text('name').notNull(),
  expiresAt: instant('expires_at').notNull(),
})

/** What is or was wrong, of one cause from its beginning to its end: see issues.ts. */
export const issues = mediadock.table(
  'issues',
  {
    id: bigserial('id', { mode: 'number' }).primaryKey(),
    /** As the problem has it: a kind, or `kind:what`. */
    cause: text('cause').notNull(),
    /** How bad, in words, and how many: as it was seen last. */
    severity: text('severity', { enum: ['critical', 'warning', 'notice'] }).notNull(),
    text: text('text').notNull(),
    href: text('href').notNull(),
    count: integer('count'),
    /** The most at once. */
    peak: integer('peak'),
    /** The most of each `sample_seconds` since it opened, null where nobody counted: few enough for a small picture. */
    samples: integer('samples')
      .array()
      .notNull()
      .default(sql`'{}'`),
    sampleSeconds: integer('sample_seconds').notNull().default(10),
    /** Who or what it is about: keys, senders. */
    affected: text('affected')
      .array()
      .notNull()
      .default(sql`'{}'`),
    openedAt: instant('opened_at').notNull(),
    seenAt: instant('seen_at').notNull(),
    worsenedAt: instant('worsened_at'),
    closedAt: instant('closed_at'),
    /** Somebody knows of it, and wants to hear of it again only after this. */
    mutedUntil: instant('muted_until'),
    mutedBy: text('muted_by'),
    /** What ALERT_WEBHOOK_URL has not been told yet, when it is tried next, and how often it was. */
    untold: text('untold', { enum: ['opened', 'worsened', 'closed'] }),
    tellAt: instant('tell_at'),
    tellTries: smallint('tell_tries').notNull().default(0),
    /** How many it was when it was told last: it is told again when it is twice as many. */
    toldCount: integer('told_count'),
  },
  (table) => [
    // Of one cause there is one at a time, whichever replica sees it.
    uniqueIndex('issues_open')
      .on(table.cause)
      .where(sql`closed_at is null`),
    index('issues_opened').on(table.openedAt.desc(), table.id.desc()),
    index('issues_untold')
      .on(table.tellAt)
      .where(sql`untold is not null`),
  ],
)

/** Replays of many that the console began: worked on by whichever replica is free. */
export const replayJobs = mediadock.table(
  'replay_jobs',
  {
    id: uuid('id').primaryKey(),
    startedAt: instant('started_at').notNull(),
    actor: text('actor').notNull(),
    /** As the address of the list has them. */
    filters: jsonb('filters').$type<Record<string, string>>().notNull(),
    /** How many they chose when it began. */
    count: integer('count').notNull(),
    state: text('state', { enum: ['running', 'done', 'stopped', 'broken'] }).notNull(),
    endedAt: instant('ended_at'),
    /** Somebody wants it to stop. */
    stopping: boolean('stopping').notNull().default(false),
    /** Where it goes on. */
    cursor: text('cursor'),
    replayed: integer('replayed').notNull().default(0),
    changed: integer('changed').notNull().default(0),
    failed: integer('failed').notNull().default(0),
    /** The first of them, for the page that shows it. */
    changes: jsonb('changes').$type<unknown[]>().notNull().default([]),
    failures: jsonb('failures')
      .$type<{ message: string; count: number; delivery_ids: string[] }[]>()
      .notNull()
      .default([]),
    /** Why it broke off. */
    problem: text('problem'),
    /** Whoever works on it does so until then; `claims` fences, so only the last claimant writes. */
    leasedUntil: instant('leased_until').notNull(),
    claims: integer('claims').notNull().default(0),
  },
  (table) => [
    index('replay_jobs_running')
      .on(table.leasedUntil)
      .where(sql`state = 'running'`),
  ],
)
