import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Executor } from '../../platform/postgres/postgres.ts'
import { later } from '../../platform/postgres/time.ts'
import type { PollOutcome } from '../domain/poll-outcomes.ts'

/** The inputs of due and overdue: the present time, a literal for pages, and STUCK_AFTER_SECONDS. */
export type StuckAfter = { now: Date | SQL; stuckAfterSeconds: number }

function stuckBefore({ now, stuckAfterSeconds }: StuckAfter): SQL {
  return later(now instanceof Date ? sql`${now.toISOString()}::timestamptz` : now, -stuckAfterSeconds)
}

/**
 * SQL condition on a row of `requests`: the request has no time for a poll and should have ended, usually since it was
 * never polled. It matches the index requests_unended.
 */
export function isOldWithoutPollTime(when: StuckAfter): SQL {
  return sql`(landed_at is null and next_poll_at is null and tracked_at <= ${stuckBefore(when)})`
}

/** Bounded, since services and senders can invent key names. */
const maxStrangers = 1000

/**
 * SQL for WITH RECURSIVE: `stranger`, the names of unknown keys in requests that are still to be polled. `ours` is an
 * array of the known names. It goes from name to name in the index requests_by_key, so its cost does not depend on the
 * number of waiting requests.
 */
export function strangers(ours: SQL): SQL {
  const waits = sql`next_poll_at is not null and next_poll_at < 'infinity'`
  return sql`
  walked (key_name) as (
    (select coalesce(key_name, '') from mediadock.requests where ${waits} and coalesce(key_name, '') > ''
      order by coalesce(key_name, '') limit 1)
    union all
    select next.key_name from walked cross join lateral (
      select coalesce(key_name, '') as key_name from mediadock.requests
      where ${waits} and coalesce(key_name, '') > walked.key_name
      order by coalesce(key_name, '') limit 1) as next
  ),
  stranger as (select key_name from walked where key_name <> all(${ours}) limit ${maxStrangers})`
}

/**
 * SQL: `queue`, the poll queues of these keys, each with the end of its key's last outage. The queue of unknown keys
 * has the latest end of all.
 */
export function pollQueues(keyNames: readonly string[]): SQL {
  return sql`
    queue as (
      select k.key_name, case when k.key_name = '' then (select max(recovered_at) from mediadock.call_budgets)
          else (select recovered_at from mediadock.call_budgets b where b.key_name = k.key_name limit 1)
        end as recovered_at
      from unnest(${sql.param([...keyNames])}::text[]) as k (key_name) limit ${keyNames.length}
    )`
}

/** SQL condition on a row of `requests`: it has a time for its next poll, and is in `queue`. */
export const isInQueue = sql`next_poll_at is not null and coalesce(key_name, '') = queue.key_name`

/**
 * SQL condition on a row of `requests`: the last poll failed because of an outage of the key of `queue` that is over.
 * The request is then due, whatever its next poll says. It matches the index requests_held_up.
 */
export const isHeldUp = sql`(next_poll_at is not null and poll_outcome in ('unreachable', 'postponed')
    and polled_at < queue.recovered_at)`

/** SQL condition on the row `r`: the request has had no terminal state for too long. */
export function isOverdue(when: StuckAfter): SQL {
  return sql`(r.landed_at is null and r.tracked_at <= ${stuckBefore(when)})`
}

/** The most frequent outcome of the last polls of overdue requests. The outcome is null if they were never polled. */
export type OverduePolls = { outcome: PollOutcome | null; detail: string | null; requests: number }

export async function readOverduePolls(db: Executor, when: StuckAfter): Promise<OverduePolls | undefined> {
  const [most] = await db.execute<OverduePolls>(sql`
    select outcome, mode() within group (order by detail) as detail, count(*)::int as requests
    from (
      select r.poll_outcome as outcome, r.poll_detail as detail from mediadock.requests r
      where ${isOverdue(when)} limit 1000
    ) as overdue group by outcome order by requests desc, outcome limit 1`)
  return most
}

/** Counts tracked requests without a terminal state for longer than `stuckAfterSeconds`. */
export async function countOverdue(db: Executor, when: StuckAfter): Promise<number> {
  const rows = await db.execute<{ n: string }>(sql`
    select count(*) as n from mediadock.requests r where ${isOverdue(when)}`)
  return Number(one(rows, 'counting overdue requests').n)
}
