import { z } from 'zod'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Executor } from '../../platform/postgres/postgres.ts'
import { shownMediaItems } from '../domain/page-limits.ts'
import { media } from '../domain/schema.ts'
import { r } from './aliases.ts'
import { arrivalSchema } from './arrivals.ts'
import { issueSchema } from './issues.ts'
import { maxUrlCharacters, withIso } from './page.ts'
import { recentSchema } from './recent.ts'
import { backlogSchema } from './reconciler.ts'

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
