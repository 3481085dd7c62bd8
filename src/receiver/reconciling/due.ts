import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { later } from '../../platform/postgres/time.ts'
import type { Keys } from '../domain/keys.ts'

/** The inputs of overdue: the present time, a literal for pages, and STUCK_AFTER_SECONDS. */
export type StuckAfter = { now: Date | SQL; stuckAfterSeconds: number }

/** SQL condition on a row `r` of `requests`: it is overdue, that is, it was tracked too long ago and has not ended. */
export function isOverdue({ now, stuckAfterSeconds }: StuckAfter): SQL {
  const at = now instanceof Date ? sql`${now.toISOString()}::timestamptz` : now
  return sql`(r.landed_at is null and r.tracked_at <= ${later(at, -stuckAfterSeconds)})`
}

/**
 * SQL condition on a row `r` of `requests`: it is overdue and has no time for a poll, usually since it was never
 * polled. It matches the index requests_unended.
 */
export function isOverdueWithoutPollTime(when: StuckAfter): SQL {
  return sql`(${isOverdue(when)} and r.next_poll_at is null)`
}

/**
 * Returns the poll queue of a request, by the name of its key. Requests without a key name share `''` with those of
 * unknown keys, because anyone can invent such names. queueOfRow() is the same in SQL.
 */
export function queueOf(keys: Keys, keyName: string | null): string {
  return keyName !== null && keys.byName.has(keyName) ? keyName : ''
}

/** SQL: the poll queue of a row of `requests`; `ours` is an array of the names of known keys. */
export function queueOfRow(ours: SQL): SQL {
  return sql`case when key_name = any(${ours}) then key_name else '' end`
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
 * SQL: `queue`, the poll queues of these keys, each with the end of its key's last outage. The queue `''`, of requests
 * without a key name, has the latest end of all.
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

/**
 * SQL condition on a row of `requests`: it has a time for its next poll, and the key name of `queue`. It matches the
 * index requests_by_key, so it finds rows of an unknown key by that name alone: see strangers().
 */
export const isScheduledForKey = sql`next_poll_at is not null and coalesce(key_name, '') = queue.key_name`

/**
 * SQL condition on a row of `requests`: the last poll failed because of an outage of the key of `queue` that is over.
 * The request is then due, whatever its next poll says. A poll that is still under way then is made again. It matches
 * the index requests_held_up.
 */
export const isHeldUp = sql`(next_poll_at is not null and poll_outcome in ('unreachable', 'postponed')
    and polled_at < queue.recovered_at)`
