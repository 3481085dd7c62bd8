import { atMost } from '../../platform/postgres/at-most.ts'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import * as feeding from '../domain/feed-schema.ts'
import * as subscribing from './subscriptions-schema.ts'

const bounds = columnsOf(feeding.feedBounds)
const e = columnsOf(feeding.feedEntries, 'e')
const s = columnsOf(subscribing.subscriptions, 's')
const subscriptions = columnsOf(subscribing.subscriptions)

/** A subscription that this process works on: `claims` fences it, so that only the last claimant writes how far it is. */
export type LeasedSubscription = {
  id: string
  name: string
  url: string
  secret: string
  onlyComplete: boolean
  position: number
  /** Beyond the position, what was answered 2xx already. */
  ahead: readonly number[]
  failures: number
  claims: number
}

type LeasedRow = RowOf<
  typeof subscribing.subscriptions,
  'id' | 'name' | 'url' | 'secret' | 'only_complete' | 'position' | 'failures' | 'claims'
> & {
  ahead: number[]
}

/**
 * Claims subscriptions for which there is something to post, the longest unworked first.
 * All of it goes by the clock of Postgres: replicas need not agree on the time.
 */
export async function claimSubscriptions(
  db: Database,
  { limit, leaseMs }: { limit: number; leaseMs: number },
): Promise<LeasedSubscription[]> {
  const rows = await db.execute<LeasedRow>(sql`
    with due as materialized (
      select ${s.id} from mediadock.subscriptions s
      where ${s.state} = 'active' and ${s.next_attempt_at} <= now() and ${s.leased_until} <= now()
        and ${s.position} < greatest((select max(${e.position}) from mediadock.feed_entries e), (select ${bounds.pruned_to} from mediadock.feed_bounds))
      order by ${s.leased_until} limit ${limit} for update skip locked
    )
    update mediadock.subscriptions s set ${subscriptions.claims} = ${s.claims} + 1, ${subscriptions.leased_until} = ${leaseEnd(leaseMs)}
    from due where ${s.id} = due.id
    returning ${list(s, 'id', 'name', 'url', 'secret', 'only_complete', 'position', 'failures', 'claims')}, to_jsonb(${s.ahead}) as ahead`)
  return rows.map(({ only_complete: onlyComplete, ...row }) => ({
    ...row,
    onlyComplete,
    position: Number(row.position),
  }))
}

/** Keeps what is held; answers the ids of those that are still this process's and may go on. */
export async function renewSubscriptions(
  db: Database,
  held: readonly Pick<LeasedSubscription, 'id' | 'claims'>[],
  leaseMs: number,
): Promise<Set<string>> {
  if (held.length === 0) return new Set()
  const rows = await db.execute<RowOf<typeof subscribing.subscriptions, 'id'>>(sql`
    with held as materialized (
      select * from jsonb_to_recordset(${JSON.stringify(held.map(({ id, claims }) => ({ id, claims })))}::jsonb) as h (id uuid, claims integer)
      limit ${atMost(held.length)}
    )
    update mediadock.subscriptions s set ${subscriptions.leased_until} = ${leaseEnd(leaseMs)}
    from held where ${s.id} = held.id and ${s.claims} = held.claims and ${s.state} = 'active'
    returning ${s.id}`)
  return new Set(rows.map(({ id }) => id))
}

/** Writes how far it is: what was posted has been answered 2xx, so nothing fails any more. False where another has claimed it since. */
export async function saveProgress(
  db: Database,
  leased: LeasedSubscription,
  { position, ahead }: { position: number; ahead: readonly number[] },
): Promise<boolean> {
  return writeOwn(
    db,
    leased,
    sql`${subscriptions.position} = greatest(${s.position}, ${position}::bigint), ${subscriptions.ahead} = ${sql.param([...ahead])}::bigint[],
      ${subscriptions.failures} = 0, ${subscriptions.failing_since} = null, ${subscriptions.last_error} = null, ${subscriptions.last_accepted_at} = now()`,
  )
}

/** Puts it off and gives it back; it stops where it has been failing for as long as it is to be tried. Answers its state. */
export async function putOffSubscription(
  db: Database,
  leased: LeasedSubscription,
  { trouble, pauseMs }: { trouble: string; pauseMs: number },
): Promise<'active' | 'paused' | 'stopped' | undefined> {
  const isSpent = sql`(${s.state} = 'active' and coalesce(${s.failing_since}, now()) + make_interval(hours => ${s.retry_hours}) <= now())`
  const rows = await db.execute<RowOf<typeof subscribing.subscriptions, 'state'>>(sql`
    update mediadock.subscriptions s set ${subscriptions.failures} = ${s.failures} + 1, ${subscriptions.failing_since} = coalesce(${s.failing_since}, now()),
      ${subscriptions.last_error} = ${trouble}, ${subscriptions.next_attempt_at} = now() + make_interval(secs => ${pauseMs / 1000}::float8),
      ${subscriptions.state} = case when ${isSpent} then 'stopped' else ${s.state} end,
      ${subscriptions.stop_reason} = case when ${isSpent} then 'retries_spent' else ${s.stop_reason} end,
      ${subscriptions.stopped_at} = case when ${isSpent} then now() else ${s.stopped_at} end,
      ${subscriptions.claims} = ${s.claims} + 1, ${subscriptions.leased_until} = now()
    where ${own(leased)} returning ${s.state}`)
  return rows[0]?.state
}

/** Stops it where it is: what comes next is not kept any more, and nothing is skipped without a word. */
export async function stopExpired(db: Database, leased: LeasedSubscription, trouble: string): Promise<boolean> {
  return writeOwn(
    db,
    leased,
    sql`${subscriptions.state} = 'stopped', ${subscriptions.stop_reason} = 'position_expired', ${subscriptions.stopped_at} = now(), ${subscriptions.last_error} = ${trouble},
      ${subscriptions.claims} = ${s.claims} + 1, ${subscriptions.leased_until} = now()`,
  )
}

/** Gives it back: whoever looks next may have it at once. */
export async function giveSubscriptionBack(db: Database, leased: LeasedSubscription): Promise<void> {
  await writeOwn(db, leased, sql`${subscriptions.claims} = ${s.claims} + 1, ${subscriptions.leased_until} = now()`)
}

async function writeOwn(db: Database, leased: LeasedSubscription, changes: SQL): Promise<boolean> {
  const rows = await db.execute<RowOf<typeof subscribing.subscriptions, 'id'>>(sql`
    update mediadock.subscriptions s set ${changes} where ${own(leased)} returning ${s.id}`)
  return rows.length > 0
}

function own({ id, claims }: LeasedSubscription): SQL {
  return sql`${s.id} = ${id}::uuid and ${s.claims} = ${claims}::int`
}

function leaseEnd(leaseMs: number): SQL {
  return sql`now() + make_interval(secs => ${leaseMs / 1000}::float8)`
}
