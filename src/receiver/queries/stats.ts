import { z } from 'zod'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Executor } from '../../platform/postgres/postgres.ts'
import * as arriving from '../domain/arrivals-schema.ts'
import * as onCall from '../domain/on-call-schema.ts'
import { shownMediaItems } from '../domain/page-limits.ts'
import { media } from '../domain/schema.ts'
import { backlogSchema } from '../gauges/backlog.ts'
import { oldSeconds } from '../upkeep/minutes.ts'
import { r } from './aliases.ts'
import { arrivalSchema } from './arrivals.ts'
import { issueSchema } from './issues.ts'
import { maxUrlCharacters, withIso } from './page.ts'

const arrivals = columnsOf(arriving.arrivals)
const c = columnsOf(arriving.arrivalCounts, 'c')
const i = columnsOf(onCall.issues, 'i')
const minutes = columnsOf(onCall.minutes)
const starts = columnsOf(onCall.processStarts)

/** The time that the first page sums up: long enough for a rate of few deliveries. */
export const recentMinutes = 5

const byOutcomeSchema = z.object({ outcome: z.string(), reason: z.string().nullable(), arrivals: z.int() })
export const recentSchema = z.object({
  minutes: z.int().describe('The number of whole minutes covered, besides the present one.'),
  arrivals: z.int(),
  ack_p95_ms: z.number().nullable().describe('Over the newest 5,000 arrivals.'),
  by_outcome: z.array(byOutcomeSchema),
})
export type Recent = z.infer<typeof recentSchema>

/** Reads the figures of the last five whole minutes and of the present one. `arrival_counts` keeps an hour. */
export async function readRecent(tx: Executor, now: Date): Promise<Recent> {
  const current = Math.floor(now.getTime() / 60_000) * 60_000
  const from = sql`${new Date(current - recentMinutes * 60_000).toISOString()}::timestamptz`
  const byOutcome = await tx.execute<z.infer<typeof byOutcomeSchema>>(sql`
    select ${c.outcome}, nullif(${c.reason}, '') as reason, sum(${c.arrivals})::int as arrivals
    from mediadock.arrival_counts c where ${c.minute} >= ${from}
    group by ${c.outcome}, ${c.reason} order by arrivals desc, outcome, reason`)
  const [ack] = await tx.execute<{ p95: number | null }>(sql`
    select percentile_cont(0.95) within group (order by ack_ms) as p95 from (
      select ${arrivals.ack_ms}, ${arrivals.status} from mediadock.arrivals where ${arrivals.arrived_at} >= ${from}
        order by ${arrivals.arrived_at} desc, ${arrivals.id} desc limit 5000) as newest
    where status = 200`)
  return {
    minutes: recentMinutes,
    arrivals: byOutcome.reduce((sum, { arrivals }) => sum + arrivals, 0),
    ack_p95_ms: ack?.p95 ?? null,
    by_outcome: [...byOutcome],
  }
}

const troubled = sql.raw("array['refused', 'unavailable', 'parked']")

/**
 * Returns since when nothing has been wrong: the end of the last minute with trouble in the last day, or of the last
 * issue that was more than a notice. If no receiver ran for a time after it, the start of the next receiver, whose
 * first write also covers the minute before its start.
 */
export async function calmSince(tx: Executor, now: Date): Promise<string | undefined> {
  const [row] = await tx.execute<{ at: string | null }>(sql`
    select greatest(
      max(minute + interval '1 minute') filter (where troubled),
      max(coalesce(started.at, minute)) filter (where begins),
      (select max(${i.closed_at}) from mediadock.issues i where ${i.severity} <> 'notice')) as at
    from (
      select ${minutes.minute}, ${minutes.overdue} > 0 or ${minutes.inbox_oldest_seconds} > ${oldSeconds} or exists (
          select from jsonb_object_keys(${minutes.arrivals}) as key
          where split_part(key, '/', 1) = any(${troubled})) as troubled,
        lag(${minutes.minute}) over (order by ${minutes.minute})
          is distinct from ${minutes.minute} - interval '1 minute' as begins
      from mediadock.minutes where ${minutes.minute} >= ${new Date(now.getTime() - 86_400_000).toISOString()}::timestamptz
    ) as recorded
    left join lateral (
      select min(${starts.started_at}) as at from mediadock.process_starts where begins
        and ${starts.started_at} >= minute and ${starts.started_at} < minute + interval '2 minutes'
    ) as started on true`)
  if (!row?.at) return undefined
  const at = new Date(row.at).toISOString()
  // The present minute ends later.
  return at < now.toISOString() ? at : now.toISOString()
}

const m = columnsOf(media, 'm')

export const statsSchema = z
  .object({
    pending: z.int().describe('Deliveries that are accepted and not yet processed.'),
    oldest_seconds: z.number().describe('The age of the oldest pending delivery.'),
    parked: z.int(),
    overdue: z.int().describe('Requests without a terminal state for longer than STUCK_AFTER_SECONDS.'),
    backlog: backlogSchema,
    quota_remaining: z.record(z.string(), z.int()).describe('The calls that each key has left in this minute.'),
    issues: z.array(issueSchema).describe('Open issues, muted ones included, the most severe first.'),
    recent: recentSchema,
    arrivals: z.array(arrivalSchema),
    results: z.array(
      z.object({
        request_id: z.guid(),
        status: z.string(),
        model: z.string().nullable(),
        media_complete: z.boolean(),
        error_message: z.string().nullable(),
        landed_at: z.iso.datetime(),
        media: z
          .array(z.object({ kind: z.string(), url: z.string(), sha256: z.string().nullable() }))
          .describe(`The first ${shownMediaItems} media.`),
        media_items: z.int().describe('The number of all its media.'),
      }),
    ),
  })
  .meta({ id: 'Stats' })
export type Stats = z.infer<typeof statsSchema>

/** Reads the latest results in the transaction of another read. */
export async function latestResults(tx: Executor, limit: number): Promise<Stats['results']> {
  const rows = await tx.execute<Stats['results'][number]>(sql`
    select ${list(r, 'request_id', 'status', 'model', 'media_complete', 'error_message', 'landed_at')},
      coalesce(its.media, '[]') as media, (
        select count(*)::int from mediadock.media m where ${m.request_id} = ${r.request_id}) as media_items
    from mediadock.requests r
    cross join lateral (
      select jsonb_agg(jsonb_build_object('kind', kind, 'url', left(url, ${maxUrlCharacters}::int), 'sha256', sha256)
        order by kind, position) as media
      from (
        select ${list(m, 'kind', 'position', 'url', 'sha256')} from mediadock.media m
        where ${m.request_id} = ${r.request_id} order by ${m.kind}, ${m.position} limit ${shownMediaItems}
      ) as shown
    ) as its
    where ${r.landed_at} is not null order by ${r.landed_at} desc nulls last limit ${limit}`)
  return rows.map((row) => withIso(row, 'landed_at'))
}
