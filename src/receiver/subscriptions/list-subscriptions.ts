import { z } from 'zod'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import type { ColumnName, RowOf } from '../../platform/postgres/rows.ts'
import { maxCounted } from '../domain/limits.ts'
import type { FeedFilter } from '../feeding/feed-filter.ts'
import { readWithin } from '../queries/deadline.ts'
import { iso, isoAlways } from '../queries/page.ts'
import { feedFilterSchema } from '../queries/result-filter.ts'
import { filterOf, subscriptions } from './subscriptions-schema.ts'

export const subscriptionSchema = z
  .object({
    name: z.string(),
    url: z.string(),
    state: z.enum(['active', 'failing', 'paused', 'stopped']).meta({
      description:
        '`failing`: the last post was not answered 2xx, and is retried. `paused`: by an operator. `stopped`: ' +
        'automatically, see stop_reason.',
    }),
    position: z.int().meta({ description: 'All changes up to here were answered 2xx or skipped by the filter.' }),
    backlog: z.int().meta({
      description: `Changes after its position, including those that its filter skips. Counted up to ${maxCounted}.`,
    }),
    oldest_unsent_at: z.iso
      .datetime()
      .nullable()
      .meta({ description: 'The time of the next change after its position; null without one.' }),
    filter: feedFilterSchema,
    retry_hours: z.int().meta({ description: 'How long failures are retried before the subscription stops.' }),
    failures: z.int().meta({ description: 'The number of consecutive failures.' }),
    failing_since: z.iso.datetime().nullable(),
    next_attempt_at: z.iso.datetime(),
    last_error: z.string().nullable(),
    last_accepted_at: z.iso.datetime().nullable(),
    paused_by: z.string().nullable(),
    paused_at: z.iso.datetime().nullable(),
    stopped_at: z.iso.datetime().nullable(),
    stop_reason: z.enum(['retries_spent', 'position_expired']).nullable(),
    created_at: z.iso.datetime(),
  })
  .meta({ id: 'Subscription' })
export type Subscription = z.infer<typeof subscriptionSchema>

type Row = RowOf<
  typeof subscriptions,
  Exclude<
    ColumnName<typeof subscriptions>,
    'id' | 'secret' | 'filter' | 'only_complete' | 'ahead' | 'claims' | 'leased_until'
  >
> & { filter: FeedFilter; backlog: number; oldest_unsent_at: string | null }

/** Lists all subscriptions by name, with their backlogs and without their secrets. */
export async function listSubscriptions(db: Database): Promise<Subscription[]> {
  return readWithin(db, (tx) => read(tx))
}

/**
 * Reads subscriptions that have stopped, or have been failing for a while. Shorter failures, for example during a
 * restart of the service, are not reported, and paused subscriptions are not included.
 */
export async function troubledSubscriptions(tx: Executor): Promise<Subscription[]> {
  const fails = sql`s.state = 'active' and s.failing_since <= now() - make_interval(mins => 10)`
  return read(tx, sql`s.state = 'stopped' or (${fails})`)
}

async function read(tx: Executor, only = sql`true`): Promise<Subscription[]> {
  const rows = await tx.execute<Row>(sql`
    select s.name, s.url, s.state, s.position, s.retry_hours, s.failures, s.failing_since, s.next_attempt_at,
      s.last_error, s.last_accepted_at, s.paused_by, s.paused_at, s.stopped_at, s.stop_reason, s.created_at,
      ${filterOf('s')} as filter, waiting.backlog, waiting.oldest_unsent_at
    from mediadock.subscriptions s, lateral (
      select count(*)::int as backlog, min(w.changed_at) filter (where w.n = 1) as oldest_unsent_at
      from (
        select row_number() over (order by e.position) as n, e.changed_at from (
          select e.position, e.changed_at from mediadock.feed_entries e where e.position > s.position
          order by e.position limit ${maxCounted}
        ) e where e.position <> all(s.ahead)
      ) w
    ) waiting
    where ${only} order by s.name`)
  return rows.map((row) => ({
    ...row,
    state: row.state === 'active' && row.failing_since !== null ? 'failing' : row.state,
    position: Number(row.position),
    oldest_unsent_at: iso(row.oldest_unsent_at),
    failing_since: iso(row.failing_since),
    next_attempt_at: isoAlways(row.next_attempt_at),
    last_accepted_at: iso(row.last_accepted_at),
    paused_at: iso(row.paused_at),
    stopped_at: iso(row.stopped_at),
    created_at: isoAlways(row.created_at),
  }))
}
