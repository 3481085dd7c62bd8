import { sql } from '../../platform/postgres/drizzle.ts'
import { leaseOf } from '../../platform/postgres/lease.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { executePrepared } from '../../platform/postgres/prepared.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { later, postgresTime } from '../../platform/postgres/time.ts'
import { filterOf, subscriptions } from './subscriptions-schema.ts'

const lease = leaseOf('s', {
  key: { id: subscriptions.id },
  due_at: subscriptions.leased_until,
  claims: subscriptions.claims,
})
const now = postgresTime()

export type LeasedSubscription = Pick<
  typeof subscriptions.$inferSelect,
  'id' | 'name' | 'url' | 'secret' | 'position' | 'failures' | 'claims' | 'filter' | 'ahead'
>

/** Claims subscriptions with changes to post, the least recently served first. */
export async function claimSubscriptions(
  db: Database,
  { limit, leaseSeconds }: { limit: number; leaseSeconds: number },
): Promise<LeasedSubscription[]> {
  const rows = await executePrepared<Omit<LeasedSubscription, 'position'> & { position: string }>(
    db,
    sql`
    with due as materialized (
      select s.id from mediadock.subscriptions s
      where s.state = 'active' and s.next_attempt_at <= ${now} and ${lease.isDue(now)}
        and s.position < greatest(
          (select max(e.position) from mediadock.feed_entries e),
          (select pruned_to from mediadock.feed_bounds))
      order by s.leased_until limit ${limit} for update skip locked
    )
    update mediadock.subscriptions s set ${lease.claim(now, leaseSeconds)} from due where s.id = due.id
    returning s.id, s.name, s.url, s.secret, s.position, s.failures, s.claims, ${filterOf('s')} as filter,
      to_jsonb(s.ahead) as ahead`,
  )
  return rows.map((row) => ({ ...row, position: Number(row.position) }))
}

/** Renews leases. Returns those that this process still holds and that are active. */
export function renewSubscriptions(
  db: Database,
  held: readonly LeasedSubscription[],
  leaseSeconds: number,
): Promise<LeasedSubscription[]> {
  return lease.renew(db, held, { now, seconds: leaseSeconds, only: sql`s.state = 'active'` })
}

/** Stores the progress. An `accepted` post clears the failures. Returns false if the lease was lost. */
export function saveProgress(
  db: Database,
  leased: LeasedSubscription,
  { position, ahead, accepted }: { position: number; ahead: readonly number[]; accepted: boolean },
): Promise<boolean> {
  const place = sql`position = greatest(s.position, ${position}::bigint), ahead = ${sql.param([...ahead])}::bigint[]`
  const cleared = sql`failures = 0, failing_since = null, last_error = null, last_accepted_at = now()`
  return lease.write(db, leased, accepted ? sql`${place}, ${cleared}` : place)
}

/** Schedules the next attempt, or stops after `retry_hours` of failures. Undefined if the lease was lost. */
export async function putOffSubscription(
  db: Database,
  leased: LeasedSubscription,
  { trouble, pauseSeconds }: { trouble: string; pauseSeconds: number },
): Promise<'active' | 'paused' | 'stopped' | undefined> {
  const since = sql`coalesce(s.failing_since, now())`
  const isSpent = sql`(s.state = 'active' and ${since} + make_interval(hours => s.retry_hours) <= now())`
  const rows = await db.execute<RowOf<typeof subscriptions, 'state'>>(sql`
    update mediadock.subscriptions s set ${lease.giveBack(now)}, failures = s.failures + 1,
      last_error = ${trouble}, next_attempt_at = ${later(now, pauseSeconds)}, failing_since = ${since},
      state = case when ${isSpent} then 'stopped' else s.state end,
      stop_reason = case when ${isSpent} then 'retries_spent' else s.stop_reason end,
      stopped_at = case when ${isSpent} then now() else s.stopped_at end
    where ${lease.isHeld(leased)} returning s.state`)
  return rows[0]?.state
}

/** Stops a subscription at its position, because the next changes are no longer kept. No change is skipped silently. */
export function stopExpired(db: Database, leased: LeasedSubscription, trouble: string): Promise<boolean> {
  const stopped = sql`state = 'stopped', stop_reason = 'position_expired', stopped_at = now(), last_error = ${trouble}`
  return lease.write(db, leased, sql`${lease.giveBack(now)}, ${stopped}`)
}

/** Gives a subscription back. Any replica may claim it at once. */
export async function giveSubscriptionBack(db: Database, leased: LeasedSubscription): Promise<void> {
  await lease.write(db, leased, lease.giveBack(now))
}
