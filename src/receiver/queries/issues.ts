import { z } from 'zod'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import * as onCall from '../domain/on-call-schema.ts'
import { readWithin } from './deadline.ts'
import { paging, textFilter, times, type Paging } from './filters.ts'
import { afterCursor, allOf, iso, isoAlways, limitOf, microsOf, toPage, within, type Order, type Page } from './page.ts'

const i = columnsOf(onCall.issues, 'i')

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

const kept = [
  'cause',
  'severity',
  'text',
  'href',
  'count',
  'peak',
  'samples',
  'sample_seconds',
  'affected',
  'opened_at',
  'seen_at',
  'worsened_at',
  'closed_at',
  'muted_until',
  'muted_by',
] as const
type Row = RowOf<typeof onCall.issues, 'id' | (typeof kept)[number]> & { micros: string }

const order: Order = { at: sql`${i.opened_at}`, id: sql`${i.id}`, idType: 'bigint' }
const columns = sql`${i.id}, ${microsOf(order.at)} as micros, ${list(i, ...kept)}`

/** What is or was wrong, the latest first: last night's stays to be seen. */
export async function listIssues(
  db: Database,
  { limit, cursor, state, severity, cause, since, until }: IssueFilters & Paging,
  now: Date,
): Promise<Page<Issue>> {
  const at = sql`${now.toISOString()}::timestamptz`
  const muted = sql`coalesce(${i.muted_until} > ${at}, false)`
  const states = {
    open: sql`${i.closed_at} is null and not ${muted}`,
    muted: sql`${i.closed_at} is null and ${muted}`,
    closed: sql`${i.closed_at} is not null`,
  }
  const chosen = allOf([
    state && states[state],
    severity && sql`${i.severity} = ${severity}`,
    cause === undefined ? undefined : sql`${i.cause} = ${cause}`,
    within(order.at, { since, until }),
    afterCursor(cursor, order),
  ])
  const rows = await readWithin(db, (tx) =>
    tx.execute<Row>(sql`
      select ${columns} from mediadock.issues i where ${chosen}
      order by ${i.opened_at} desc nulls last, ${i.id} desc nulls last limit ${limitOf({ limit })}`),
  )
  return toPage(rows, { limit }, (row) => toIssue(row, now))
}

const maxOpen = 200

/** Inside another read: all that are open, the worst first. */
export async function openIssues(tx: Executor, now: Date): Promise<Issue[]> {
  const rows = await tx.execute<Row>(sql`
    select ${columns} from mediadock.issues i where ${i.closed_at} is null
    order by array_position(array['critical', 'warning', 'notice'], ${i.severity}), ${i.opened_at} limit ${maxOpen}`)
  return rows.map((row) => toIssue(row, now))
}

function toIssue({ micros: _micros, ...row }: Row, now: Date): Issue {
  const mutedUntil = iso(row.muted_until)
  const isMuted = mutedUntil !== null && Date.parse(mutedUntil) > now.getTime()
  return {
    ...row,
    id: Number(row.id),
    // The driver makes NaN of a NULL among numbers.
    samples: row.samples.map((count) => (Number.isNaN(count) ? null : count)),
    state: row.closed_at !== null ? 'closed' : isMuted ? 'muted' : 'open',
    opened_at: isoAlways(row.opened_at),
    seen_at: isoAlways(row.seen_at),
    worsened_at: iso(row.worsened_at),
    closed_at: iso(row.closed_at),
    muted_until: isMuted ? mutedUntil : null,
    muted_by: isMuted ? row.muted_by : null,
  }
}
