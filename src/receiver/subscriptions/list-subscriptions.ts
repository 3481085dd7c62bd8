import { z } from 'zod'
import { alias, getTableColumns, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import { maxCounted } from '../domain/limits.ts'
import type { FeedFilter } from '../feeding/feed-filter.ts'
import { readWithin } from '../queries/deadline.ts'
import { feedFilterSchema } from '../queries/filters.ts'
import { filterOf, subscriptions } from './subscriptions-schema.ts'

export const subscriptionSchema = z
  .object({
    name: z.string(),
    url: z.string(),
    state: z
      .enum(['active', 'failing', 'paused', 'stopped'])
      .describe(
        '`failing`: the last post was not answered 2xx, and is retried. `paused`: by an operator. `stopped`: ' +
          'automatically, see stop_reason.',
      ),
    position: z.int().describe('All changes up to here were answered 2xx or skipped by the filter.'),
    backlog: z
      .int()
      .describe(`Changes after its position, including those that its filter skips. Counted up to ${maxCounted}.`),
    oldest_unsent_at: z.iso
      .datetime()
      .nullable()
      .describe('The time of the next change after its position; null without one.'),
    filter: feedFilterSchema,
    retry_hours: z.int().describe('How long failures are retried before the subscription stops.'),
    failures: z.int().describe('The number of consecutive failures.'),
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

/** Lists all subscriptions by name, with their backlogs and without their secrets. */
export async function listSubscriptions(db: Database): Promise<Subscription[]> {
  return readWithin(db, (tx) => read(tx))
}

/** Reads subscriptions that have stopped, or have failed for longer than a restart of their service takes. */
export async function troubledSubscriptions(tx: Executor): Promise<Subscription[]> {
  const fails = sql`s.state = 'active' and s.failing_since <= now() - make_interval(mins => 10)`
  return read(tx, sql`s.state = 'stopped' or (${fails})`)
}

async function read(tx: Executor, only?: SQL): Promise<Subscription[]> {
  const s = alias(subscriptions, 's')
  const {
    id: _id,
    secret: _secret,
    only_complete: _only_complete,
    ahead: _ahead,
    claims: _claims,
    leased_until: _leased_until,
    ...shown
  } = getTableColumns(s)
  const waiting = sql`(
    select count(*)::int as backlog, min(w.changed_at) filter (where w.n = 1) as oldest_unsent_at
    from (
      select row_number() over (order by e.position) as n, e.changed_at from (
        select e.position, e.changed_at from mediadock.feed_entries e where e.position > s.position
        order by e.position limit ${maxCounted}
      ) e where e.position <> all(s.ahead)
    ) w
  ) waiting`
  return tx
    .select({
      ...shown,
      state: sql<Subscription['state']>`
        case when s.state = 'active' and s.failing_since is not null then 'failing' else s.state end`,
      filter: sql<FeedFilter>`${filterOf('s')}`,
      backlog: sql<number>`waiting.backlog`,
      oldest_unsent_at: sql<string | null>`waiting.oldest_unsent_at`.mapWith(s.created_at),
    })
    .from(s)
    .innerJoinLateral(waiting, sql`true`)
    .where(only)
    .orderBy(s.name)
}
