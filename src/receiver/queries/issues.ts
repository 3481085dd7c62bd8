import { z } from 'zod'
import { and, desc, eq, getTableColumns, isNotNull, isNull, not, sql } from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import { issues } from '../domain/on-call-schema.ts'
import { severities } from '../domain/problem.ts'
import { paging, textFilter, times } from './filters.ts'
import { matches, microsOf, readPage, type Order, type Page } from './page.ts'

export const issueStates = ['open', 'muted', 'closed'] as const

export const issueSchema = z
  .object({
    id: z.int(),
    cause: z.string().describe('The kind, as `kind` or `kind:subject`.'),
    state: z.enum(issueStates).describe('muted: open, but its notifications are stopped for a while.'),
    severity: z.enum(severities),
    text: z.string().describe('What is wrong, as last seen.'),
    href: z.string().describe('The console page that shows the problem and the actions against it.'),
    count: z.int().nullable().describe('The number of items concerned, as last seen.'),
    peak: z.int().nullable().describe('The highest count so far.'),
    affected: z.array(z.string()).describe('The keys, senders, roles, subscriptions or requests concerned.'),
    opened_at: z.iso.datetime(),
    seen_at: z.iso.datetime().describe('When the problem was last present.'),
    worsened_at: z.iso.datetime().nullable(),
    closed_at: z.iso.datetime().nullable(),
    muted_until: z.iso.datetime().nullable(),
    muted_by: z.string().nullable(),
  })
  .meta({ id: 'Issue' })
export type Issue = z.infer<typeof issueSchema>

export const issueListSchema = z.strictObject({
  state: z.enum(issueStates).optional(),
  severity: z.enum(severities).optional(),
  cause: textFilter.optional(),
  ...times,
  ...paging,
})
type IssueQuery = z.infer<typeof issueListSchema>

const order: Order = { at: issues.opened_at, id: issues.id }

const {
  untold: _untold,
  tell_at: _at,
  tell_tries: _tries,
  told_count: _told,
  samples: _samples,
  sample_seconds: _seconds,
  ...shown
} = getTableColumns(issues)
type Row = Pick<typeof issues.$inferSelect, keyof typeof shown>

/** Lists open and closed issues, newest first. */
export async function listIssues(db: Database, { state, ...query }: IssueQuery, now: Date): Promise<Page<Issue>> {
  const isMuted = sql`coalesce(${issues.muted_until} > ${now.toISOString()}, false)`
  const states = {
    open: and(isNull(issues.closed_at), not(isMuted)),
    muted: and(isNull(issues.closed_at), isMuted),
    closed: isNotNull(issues.closed_at),
  }
  const columns = { ...shown, micros: microsOf(order.at) }
  return readPage(db, query, {
    order,
    matching: and(state && states[state], matches(issues, query)),
    select: (tx, where) => tx.select(columns).from(issues).where(where),
    toItem: (row) => toIssue(row, now),
  })
}

/** Reads up to 200 open issues in the transaction of another read, the most severe first. */
export async function openIssues(tx: Executor, now: Date): Promise<Issue[]> {
  const worst = sql`array_position(array['critical', 'warning', 'notice'], ${issues.severity})`
  const rows = await tx
    .select(shown)
    .from(issues)
    .where(isNull(issues.closed_at))
    .orderBy(worst, issues.opened_at)
    .limit(200)
  return rows.map((row) => toIssue(row, now))
}

/** Returns the end of the last recorded outage of Postgres; null without one. */
export async function lastOutageEnd(tx: Executor): Promise<string | null> {
  const { cause, closed_at, opened_at } = issues
  const [outage] = await tx
    .select({ closed_at })
    .from(issues)
    .where(eq(cause, 'postgres_away'))
    .orderBy(desc(opened_at))
    .limit(1)
  return outage?.closed_at ?? null
}

function toIssue({ muted_until, muted_by, ...row }: Row, now: Date): Issue {
  const isMuted = muted_until !== null && Date.parse(muted_until) > now.getTime()
  return {
    ...row,
    state: row.closed_at !== null ? 'closed' : isMuted ? 'muted' : 'open',
    muted_until: isMuted ? muted_until : null,
    muted_by: isMuted ? muted_by : null,
  }
}
