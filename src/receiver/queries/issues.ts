import { z } from 'zod'
import { and, getTableColumns, isNotNull, isNull, not, sql } from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import { issues } from '../domain/on-call-schema.ts'
import { readWithin } from './deadline.ts'
import { paging, textFilter, times, type Paging } from './filters.ts'
import { afterCursor, equals, limitOf, microsOf, newestFirst, toPage, within, type Order, type Page } from './page.ts'

export const issueStates = ['open', 'muted', 'closed'] as const
const severities = ['critical', 'warning', 'notice'] as const

export const issueSchema = z
  .object({
    id: z.int(),
    cause: z.string().meta({ description: 'The kind, as `kind` or `kind:what`.' }),
    state: z.enum(issueStates).meta({ description: 'muted: open, and somebody knows of it.' }),
    severity: z.enum(severities),
    text: z.string().meta({ description: 'What is wrong, in words, as it was seen last.' }),
    href: z.string().meta({ description: 'The page of the console that shows it and acts on it.' }),
    count: z.int().nullable().meta({ description: 'How many of what it is about there are, or were last.' }),
    peak: z.int().nullable().meta({ description: 'The most that there were.' }),
    samples: z
      .array(z.int().nullable())
      .meta({ description: 'The most of each `sample_seconds` since it opened; null where nobody counted.' }),
    sample_seconds: z.int(),
    affected: z.array(z.string()).meta({ description: 'Whom or what it is about: keys, senders.' }),
    opened_at: z.iso.datetime(),
    seen_at: z.iso.datetime().meta({ description: 'When it was last so.' }),
    worsened_at: z.iso.datetime().nullable(),
    closed_at: z.iso.datetime().nullable(),
    muted_until: z.iso.datetime().nullable(),
    muted_by: z.string().nullable(),
  })
  .meta({ id: 'Issue' })
export type Issue = z.infer<typeof issueSchema>

const issueFiltersSchema = z.strictObject({
  state: z.enum(issueStates, `must be one of ${issueStates.join(', ')}`).optional(),
  severity: z.enum(severities, `must be one of ${severities.join(', ')}`).optional(),
  cause: textFilter.optional(),
  ...times,
})
export type IssueFilters = z.infer<typeof issueFiltersSchema>
export const issueListSchema = issueFiltersSchema.extend(paging)

const order: Order = { at: issues.opened_at, id: issues.id }

const { untold: _untold, tell_at: _at, tell_tries: _tries, told_count: _told, ...shown } = getTableColumns(issues)
type Row = Pick<typeof issues.$inferSelect, keyof typeof shown>

/** What is or was wrong, the latest first: last night's stays to be seen. */
export async function listIssues(
  db: Database,
  { limit, cursor, state, severity, cause, since, until }: IssueFilters & Paging,
  now: Date,
): Promise<Page<Issue>> {
  const isMuted = sql`coalesce(${issues.muted_until} > ${now.toISOString()}, false)`
  const states = {
    open: and(isNull(issues.closed_at), not(isMuted)),
    muted: and(isNull(issues.closed_at), isMuted),
    closed: isNotNull(issues.closed_at),
  }
  const chosen = and(
    state && states[state],
    equals(issues.severity, severity),
    equals(issues.cause, cause),
    within(order.at, { since, until }),
    afterCursor(cursor, order),
  )
  const rows = await readWithin(db, (tx) =>
    tx
      .select({ ...shown, micros: microsOf(order.at) })
      .from(issues)
      .where(chosen)
      .orderBy(newestFirst(order))
      .limit(limitOf({ limit })),
  )
  return toPage(rows, { limit }, ({ micros: _micros, ...row }) => toIssue(row, now))
}

const maxOpen = 200

/** Inside another read: all that are open, the worst first. */
export async function openIssues(tx: Executor, now: Date): Promise<Issue[]> {
  const worst = sql`array_position(array['critical', 'warning', 'notice'], ${issues.severity})`
  const rows = await tx
    .select(shown)
    .from(issues)
    .where(isNull(issues.closed_at))
    .orderBy(worst, issues.opened_at)
    .limit(maxOpen)
  return rows.map((row) => toIssue(row, now))
}

function toIssue({ samples, muted_until, muted_by, ...row }: Row, now: Date): Issue {
  const isMuted = muted_until !== null && Date.parse(muted_until) > now.getTime()
  return {
    ...row,
    // The driver makes NaN of a NULL among numbers.
    samples: samples.map((count) => (Number.isNaN(count) ? null : count)),
    state: row.closed_at !== null ? 'closed' : isMuted ? 'muted' : 'open',
    muted_until: isMuted ? muted_until : null,
    muted_by: isMuted ? muted_by : null,
  }
}
