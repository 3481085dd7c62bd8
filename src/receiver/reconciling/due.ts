import { columnsOf } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Executor } from '../../platform/postgres/postgres.ts'
import { later } from '../../platform/postgres/time.ts'
import { callBudgets } from '../domain/budgets-schema.ts'
import type { PollOutcome } from '../domain/poll-outcomes.ts'
import * as schema from '../domain/schema.ts'

const budget = columnsOf(callBudgets)
const requests = columnsOf(schema.requests)
const r = columnsOf(schema.requests, 'r')

/** The inputs of due and overdue: the present time, a literal for pages, and STUCK_AFTER_SECONDS. */
export type StuckAfter = { now: Date | SQL; stuckAfterSeconds: number }

function timeAt(now: Date | SQL): SQL {
  return now instanceof Date ? sql`${now.toISOString()}::timestamptz` : now
}

/**
 * SQL condition on a row of `requests`: the request is due for a poll. A tracked request without a time for its next
 * poll is due when it should have ended.
 */
export function isDue({ now, stuckAfterSeconds }: StuckAfter): SQL {
  const at = timeAt(now)
  return sql`((${requests.landed_at} is null or ${requests.next_poll_at} is not null)
    and coalesce(${requests.next_poll_at}, ${requests.tracked_at}) <= ${at}
    and (${requests.next_poll_at} is not null or ${requests.tracked_at} <= ${later(at, -stuckAfterSeconds)}))`
}

/**
 * SQL condition on a row of `requests`: the request was never polled, has no time for a poll, and should have ended. It
 * matches the index requests_unended.
 */
export function isNeverPolled({ now, stuckAfterSeconds }: StuckAfter): SQL {
  return sql`(${requests.landed_at} is null and ${requests.next_poll_at} is null
    and ${requests.tracked_at} <= ${later(timeAt(now), -stuckAfterSeconds)})`
}

/** Bounded, since services and senders can invent key names. */
const maxStrangers = 1000

/**
 * SQL for WITH RECURSIVE: `stranger`, the names of unknown keys in requests that are still to be polled. `ours` is an
 * array of the known names. It goes from name to name in the index requests_by_key, so its cost does not depend on the
 * number of waiting requests.
 */
export function strangers(ours: SQL): SQL {
  const waits = sql`${requests.next_poll_at} is not null and ${requests.next_poll_at} < 'infinity'`
  return sql`
  walked (key_name) as (
    (select coalesce(${requests.key_name}, '') from mediadock.requests where ${waits}
      and coalesce(${requests.key_name}, '') > ''
      order by coalesce(${requests.key_name}, '') limit 1)
    union all
    select next.key_name from walked cross join lateral (
      select coalesce(${requests.key_name}, '') as key_name from mediadock.requests where ${waits}
        and coalesce(${requests.key_name}, '') > walked.key_name
      order by coalesce(${requests.key_name}, '') limit 1) as next
  ),
  stranger as (select key_name from walked where key_name <> all(${ours}) limit ${maxStrangers})`
}

/** SQL: `line`, each key with the end of its last outage; requests without a key have the latest end of all. */
export function lineOfEach(lines: readonly string[]): SQL {
  return sql`
    line as (
      select l.key_name, case when l.key_name = '' then (select max(${budget.recovered_at}) from mediadock.call_budgets)
          else (select ${budget.recovered_at} from mediadock.call_budgets
            where call_budgets.${budget.key_name} = l.key_name limit 1) end as recovered_at
      from unnest(${sql.param([...lines])}::text[]) as l (key_name) limit ${lines.length}
    )`
}

/** SQL condition on a row of `requests`: it has a time for its next poll, and is of `line`. */
export const isOfLine = sql`${requests.next_poll_at} is not null and coalesce(${requests.key_name}, '') = line.key_name`

/** SQL condition on a row of `requests`: the result has landed and is still to be completed. */
export const isIncomplete = sql`(${requests.next_poll_at} is not null and ${requests.landed_at} is not null
  and not ${requests.media_complete})`

/**
 * SQL condition on a row of `requests`: the last poll failed because of an outage that ended at `recoveredAt`. The
 * request is then due, whatever its next poll says. It matches the index requests_held_up.
 */
export function isHeldUp(recoveredAt: SQL): SQL {
  return sql`(${requests.next_poll_at} is not null and ${requests.poll_outcome} in ('unreachable', 'postponed')
    and ${requests.polled_at} < ${recoveredAt})`
}

/** SQL condition on the row `r`: the request has had no terminal state for too long. */
export function isOverdue({ now, stuckAfterSeconds }: StuckAfter): SQL {
  return sql`(${r.landed_at} is null and ${r.tracked_at} <= ${later(timeAt(now), -stuckAfterSeconds)})`
}

/** The most frequent outcome of the last polls of overdue requests. The outcome is null if they were never polled. */
export type OverduePolls = { outcome: PollOutcome | null; detail: string | null; requests: number }

export async function readOverduePolls(db: Executor, when: StuckAfter): Promise<OverduePolls | undefined> {
  const [most] = await db.execute<OverduePolls>(sql`
    select outcome, mode() within group (order by detail) as detail, count(*)::int as requests
    from (
      select ${r.poll_outcome} as outcome, ${r.poll_detail} as detail from mediadock.requests r
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
