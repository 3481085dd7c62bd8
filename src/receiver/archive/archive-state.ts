import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Executor } from '../../platform/postgres/postgres.ts'
import { later } from '../../platform/postgres/time.ts'
import { maxCounted } from '../domain/limits.ts'
import { maxIdsInAddress } from '../domain/problem.ts'
import { withIso } from '../queries/page.ts'

/** Copies in one state, counted up to `maxCounted`, with their requests and the last reason of a failure. */
type Some = { count: number; requests: string[]; trouble: string | null }

export type ArchiveState = {
  /** The longest due first. */
  waiting: Some
  /** Since when the oldest copy is due; null if none waits. */
  due_since: string | null
  /** The first end of a link whose copy waits; null if none is known. */
  links_end: string | null
  /** The store's last error, among the copies that are due first; null without one. */
  store_trouble: string | null
  /** Copies given up in the last hour: gone at the provider, or failed for another reason. */
  gone: Some
  failed: Some
  /** Copies that still wait although their links end within a quarter of an hour, and the first of these ends. */
  expiring: Some
  expires_first: string | null
}

/** Reads the state of the archive for the problems of the first page. */
export async function readArchiveState(tx: Executor, now: Date): Promise<ArchiveState> {
  const at = sql`${now.toISOString()}::timestamptz`
  const since = sql`${new Date(now.getTime() - 3_600_000).toISOString()}::timestamptz`
  const copies = (which: SQL, order: SQL, most: number) => sql`(
    select request_id, due_at, expires_at, ended_at, fault, trouble, row_number() over (order by ${order}) as place
    from mediadock.media_copies where ${which} order by ${order} limit ${most})`
  const some = (chosen: SQL) => sql`(select jsonb_build_object('count', count(*),
    'requests', array(select request_id from ${chosen} group by request_id order by min(place) limit ${maxIdsInAddress}),
    'trouble', (array_agg(trouble order by place) filter (where trouble is not null))[1]) from ${chosen})`
  // Links that end within 15 minutes: a copy takes up to ten, and a person needs a few more to act.
  const expires = sql`state = 'waiting' and expires_at > ${at} and expires_at <= ${later(at, 15 * 60)}`
  const rows = await tx.execute<ArchiveState>(sql`
    with waiting as ${copies(sql`state = 'waiting'`, sql`due_at`, maxCounted)},
    given_up as ${copies(sql`state = 'failed' and ended_at >= ${since}`, sql`ended_at desc`, maxCounted)},
    gone as (select * from given_up where fault = 'gone'),
    failed as (select * from given_up where fault <> 'gone'),
    expiring as ${copies(expires, sql`expires_at`, maxCounted)}
    select ${some(sql`waiting`)} as waiting, (select min(due_at) from waiting) as due_since,
      (select min(expires_at) from mediadock.media_copies
        where state = 'waiting' and expires_at > ${at}) as links_end,
      (select trouble from waiting where place <= 200 and fault = 'store' order by place desc limit 1) as store_trouble,
      ${some(sql`gone`)} as gone, ${some(sql`failed`)} as failed, ${some(sql`expiring`)} as expiring,
      (select min(expires_at) from expiring) as expires_first`)
  return withIso(one(rows, 'reading the state of the archive'), 'due_since', 'links_end', 'expires_first')
}
