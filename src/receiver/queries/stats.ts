import { z } from 'zod'
import { eq, isNotNull, sql } from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import { media, requests } from '../domain/schema.ts'
import { remainingCalls } from '../fetching/read-budgets.ts'
import { countParked, depth } from '../landing/inbox.ts'
import { readBacklog, type BacklogOptions } from '../reconciling/backlog.ts'
import { countOverdue } from '../reconciling/due.ts'
import { arrivalSchema, newestArrivals } from './arrivals.ts'
import { readWithin } from './deadline.ts'
import { issueSchema, openIssues } from './issues.ts'
import { maxUrlLength } from './page.ts'
import { readRecent, recentSchema } from './recent.ts'
import { backlogSchema } from './reconciler.ts'

const at = z.iso.datetime()

/** The most media listed per result. A read of one result returns all of them. */
const shownMedia = 10
const shownCharacters = 500

export const statsSchema = z
  .object({
    pending: z.int().meta({ description: 'Deliveries that are accepted and not yet processed.' }),
    oldest_seconds: z.number().meta({ description: 'The age of the oldest pending delivery.' }),
    parked: z.int(),
    overdue: z.int().meta({ description: 'Requests without a terminal state for longer than STUCK_AFTER_SECONDS.' }),
    backlog: backlogSchema,
    quota_remaining: z
      .record(z.string(), z.int())
      .meta({ description: 'The calls to the provider that each key has left in this minute.' }),
    issues: z.array(issueSchema).meta({ description: 'Open issues, muted ones included, the most severe first.' }),
    recent: recentSchema,
    arrivals: z.array(arrivalSchema),
    results: z.array(
      z.object({
        request_id: z.guid(),
        status: z.string(),
        model: z.string().nullable(),
        media_complete: z.boolean(),
        error_message: z
          .string()
          .nullable()
          .meta({ description: `The first ${shownCharacters} characters.` }),
        landed_at: at,
        media: z
          .array(z.object({ kind: z.string(), url: z.string(), sha256: z.string().nullable() }))
          .meta({ description: `The first ${shownMedia} media.` }),
        media_items: z.int().meta({ description: 'The number of all its media.' }),
      }),
    ),
  })
  .meta({ id: 'Stats' })
export type Stats = z.infer<typeof statsSchema>

/** Reads the present state for programs. The console's first page reads more at once, with readNow(). */
export async function readStats(
  db: Database,
  { now, stuckAfterSeconds, fetchRatePerMinute, keys }: BacklogOptions,
): Promise<Stats> {
  return readWithin(db, async (tx) => {
    const { pending, oldestSeconds } = await depth(tx, now)
    return {
      pending,
      oldest_seconds: oldestSeconds,
      parked: await countParked(tx),
      overdue: await countOverdue(tx, { now, stuckAfterSeconds }),
      backlog: await readBacklog(tx, { now, stuckAfterSeconds, fetchRatePerMinute, keys }),
      quota_remaining: Object.fromEntries(await remainingCalls(tx, fetchRatePerMinute, now)),
      issues: await openIssues(tx, now),
      recent: await readRecent(tx, now),
      arrivals: await newestArrivals(tx, newest),
      results: await latestResults(tx),
    }
  })
}

const newest = 20

/** Reads the latest results in the transaction of another read. */
export async function latestResults(tx: Executor, limit = newest): Promise<Stats['results']> {
  const { request_id, status, media_complete, landed_at } = requests
  const its = tx
    .select({ kind: media.kind, position: media.position, url: media.url, sha256: media.sha256 })
    .from(media)
    .where(eq(media.request_id, request_id))
    .orderBy(media.kind, media.position)
    .limit(shownMedia)
    .as('its')
  const item = sql`jsonb_build_object(
    'kind', ${its.kind}, 'url', left(${its.url}, ${maxUrlLength}::int), 'sha256', ${its.sha256})`
  const items = sql`jsonb_agg(${item} order by ${its.kind}, ${its.position})`
  const shown = tx
    .select({ media: sql<Stats['results'][number]['media']>`coalesce(${items}, '[]')`.as('media') })
    .from(its)
    .as('shown')
  const all = tx
    .select({ media_items: sql<number>`count(*)::int`.as('media_items') })
    .from(media)
    .where(eq(media.request_id, request_id))
    .as('all_media')
  return tx
    .select({
      request_id,
      status,
      model: sql<string | null>`left(${requests.model}, ${shownCharacters}::int)`,
      media_complete,
      error_message: sql<string | null>`left(${requests.error_message}, ${shownCharacters}::int)`,
      landed_at: sql<string>`${landed_at}`.mapWith(landed_at),
      media: shown.media,
      media_items: all.media_items,
    })
    .from(requests)
    .crossJoinLateral(shown)
    .crossJoinLateral(all)
    .where(isNotNull(landed_at))
    .orderBy(sql`${landed_at} desc nulls last`)
    .limit(limit)
}
