import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Executor } from '../../platform/postgres/postgres.ts'
import { later } from '../../platform/postgres/time.ts'
import { maxCounted } from '../domain/limits.ts'
import { maxIdsInAddress } from '../domain/problem.ts'
import { iso } from '../queries/page.ts'

/** The state of the archive. Waiting and failed copies are counted up to `maxCounted`. */
export type ArchiveState = {
  waiting: number
  /** Their requests, the longest due first. */
  waiting_requests: string[]
  /** Since when the oldest copy is due; null if none is due. */
  due_since: string | null
  /** The first end of a link whose copy waits; null if none is known. */
  links_end: string | null
  /** The store's last error, among the copies that are due first; null without one. */
  store_trouble: string | null
  /** Copies given up in the last hour: gone at the provider, or failed for another reason, with their requests. */
  gone: number
  gone_requests: string[]
  gone_trouble: string | null
  failed: number
  failed_requests: string[]
  failed_trouble: string | null
  /** Copies that still wait although their links end within a quarter of an hour. */
  expiring: number
  expires_first: string | null
  expiring_requests: string[]
  expiring_trouble: string | null
}

const requestsOf = (chosen: SQL, order: SQL) => sql`
  array(select request_id::text from ${chosen} group by request_id order by ${order} limit ${maxIdsInAddress})`

/** Reads the state of the archive for the problems of the first page. */
export async function readArchiveState(tx: Executor, now: Date): Promise<ArchiveState> {
  const at = sql`${now.toISOString()}::timestamptz`
  const since = sql`${new Date(now.getTime() - 3_600_000).toISOString()}::timestamptz`
  // Links that end within 15 minutes: a copy takes up to ten, and a person needs a few more to act.
  const rows = await tx.execute<ArchiveState>(sql`
    with waiting as (
      select request_id, due_at from mediadock.media_copies
      where state = 'waiting' order by due_at limit ${maxCounted}
    ),
    first as (
      select due_at, fault, trouble from mediadock.media_copies
      where state = 'waiting' order by due_at limit 200
    ),
    failed as (
      select request_id, fault, trouble, ended_at from mediadock.media_copies
      where state = 'failed' and ended_at >= ${since}
      order by ended_at desc limit ${maxCounted}
    ),
    expiring as (
      select request_id, expires_at, trouble from mediadock.media_copies
      where state = 'waiting' and expires_at > ${at}
        and expires_at <= ${later(at, 15 * 60)}
      order by expires_at limit ${maxCounted}
    )
    select (select count(*)::int from waiting) as waiting,
      ${requestsOf(sql`waiting`, sql`min(due_at)`)} as waiting_requests,
      (select min(expires_at) from mediadock.media_copies
        where state = 'waiting' and expires_at > ${at}) as links_end,
      (select min(due_at) from first where due_at <= ${at}) as due_since,
      (select trouble from first where fault = 'store' order by due_at desc limit 1) as store_trouble,
      (select count(*)::int from failed where fault = 'gone') as gone,
      ${requestsOf(sql`failed where fault = 'gone'`, sql`max(ended_at) desc`)} as gone_requests,
      (select trouble from failed where fault = 'gone' order by ended_at desc limit 1) as gone_trouble,
      (select count(*)::int from failed where fault <> 'gone') as failed,
      ${requestsOf(sql`failed where fault <> 'gone'`, sql`max(ended_at) desc`)} as failed_requests,
      (select trouble from failed where fault <> 'gone' order by ended_at desc limit 1) as failed_trouble,
      (select count(*)::int from expiring) as expiring,
      (select min(expires_at) from expiring) as expires_first,
      ${requestsOf(sql`expiring`, sql`min(expires_at)`)} as expiring_requests,
      (select trouble from expiring where trouble is not null order by expires_at limit 1) as expiring_trouble`)
  const state = one(rows, 'reading the state of the archive')
  return {
    ...state,
    due_since: iso(state.due_since),
    links_end: iso(state.links_end),
    expires_first: iso(state.expires_first),
  }
}
