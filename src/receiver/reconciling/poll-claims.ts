import { turnOf } from '../../platform/fair-share.ts'
import { columnsOf } from '../../platform/postgres/columns.ts'
import { sql, type SQL, type StringChunk } from '../../platform/postgres/drizzle.ts'
import { isAboutTheRow, metALock } from '../../platform/postgres/errors.ts'
import type { Keys } from '../domain/keys.ts'
import * as schema from '../domain/schema.ts'
import { claim, type ClaimDeps, type Due } from './claimed-polls.ts'
import { isHeldUp, lineOfEach, isNeverPolled, isOfLine, strangers } from './due.ts'

const requests = columnsOf(schema.requests)

/** An operator waits for the answer. Landings hold locks for milliseconds, but another transaction may never end. */
const lockWaitMs = 2000

/**
 * The line in which a request waits: its key's, or one line for all unknown keys, since their names are free to invent.
 */
export function lineOf(keys: Keys, keyName: string | null): string {
  return keyName !== null && keys.byName.has(keyName) ? keyName : ''
}

export type Wanted = {
  limit: number
  /** Lines without calls at present, and lines without calls for extra polls. */
  resting: ReadonlySet<string>
  restingExtra?: ReadonlySet<string>
}

/** SQL for `due`: a poll by the schedule. */
const isScheduled = sql`false as is_extra, null::timestamptz as scheduled_at`

/** SQL: the line of a row; `ours` is an array of the names of known keys. */
function lineOfRow(ours: SQL): SQL {
  return sql`case when ${requests.key_name} = any(${ours}) then ${requests.key_name} else '' end`
}

/**
 * Claims requests whose next poll is due, whose outage is over, or that wait for an extra poll: round-robin by key.
 * Within a key, requests that callers wait for come first, then incomplete results, then the longest due, so requests
 * that no key knows do not delay incomplete results; extra polls come last. Each line is read by an index, so the cost
 * does not depend on the number of due requests. Scheduled polls of unknown keys are left to claimOverdue().
 */
export async function claimDue(deps: ClaimDeps, { limit, resting, restingExtra }: Wanted): Promise<Due[]> {
  const at = deps.time()
  const names = deps.keys().all.map(({ name }) => name)
  const ours = sql`${sql.param(names)}::text[]`
  const lines = ['', ...names].filter((line) => !resting.has(line))
  const awaited = sql`${sql.param([...(deps.awaited?.() ?? [])])}::uuid[]`
  const isTime = sql`${requests.next_poll_at} <= ${at}`
  /** Up to `limit` rows of each line, in the order of an index. */
  const ofLines = (condition: SQL, order: StringChunk) => sql`
      select line.key_name, of_line.* from line cross join lateral (
        select ${requests.request_id}, least(${requests.next_poll_at}, ${at}) as due_at from mediadock.requests
        where ${isOfLine} and ${condition} order by ${order} limit ${limit} for update skip locked
      ) as of_line`
  return claimApart(
    deps,
    (only) => sql`
    ${lineOfEach(lines)},
    scheduled as (${ofLines(sql`${isTime} and ${only}`, requests.next_poll_at)}),
    incomplete as (${ofLines(sql`${requests.landed_at} is not null and ${isTime} and ${only}`, requests.next_poll_at)}),
    held_up as (${ofLines(sql`${isHeldUp(sql`line.recovered_at`)} and ${only}`, requests.polled_at)}),
    -- Conditions that match only the index of the ids: a plan made for empty tables could read all due requests.
    awaited as (
      select coalesce(${requests.key_name}, '') as key_name, ${requests.request_id}, ${requests.next_poll_at} as due_at
      from mediadock.requests
      where ${requests.request_id} = any(${awaited}) and coalesce(${requests.next_poll_at} <= ${at}, false)
        and array_position(${sql.param(lines)}::text[], coalesce(${requests.key_name}, '')) is not null
        and ${only}
      limit ${limit} for update skip locked
    ),
    extra as (
      select ${lineOfRow(ours)} as key_name, ${requests.request_id}, ${requests.doubt_poll_at} as due_at,
        ${requests.next_poll_at} as scheduled_at
      from mediadock.requests
      where ${requests.doubt_poll_at} <= ${at} and ${requests.confirmed_at} is null
        and ${lineOfRow(ours)} <> all(${sql.param([...(restingExtra ?? [])])}::text[]) and ${only}
      order by ${requests.doubt_poll_at} limit ${limit} for update skip locked
    ),
    found as (
      select distinct on (request_id) * from (
        select *, ${isScheduled}, 0 as rank from awaited
        union all select *, ${isScheduled}, 1 from incomplete
        union all select *, ${isScheduled}, 2 from scheduled
        union all select *, ${isScheduled}, 2 from held_up
        union all select key_name, request_id, due_at, true, scheduled_at, 3 from extra
      ) as ways
      order by request_id, rank
    ),
    due as (
      select *, row_number() over (order by turn, rank, due_at) as place
      from (select *, ${turnOf(sql`key_name`, sql`rank, due_at`)} as turn from found) as in_turns
      order by place limit ${limit}
    )`,
  )
}

/**
 * Claims overdue requests that were never polled, and due requests of unknown keys, oldest first. Due requests of known
 * keys are skipped by the index.
 */
export function claimOverdue(deps: ClaimDeps, { limit, resting }: Wanted): Promise<Due[]> {
  const at = deps.time()
  const ours = sql`${sql.param(deps.keys().all.map(({ name }) => name))}::text[]`
  return claimApart(
    deps,
    (only) => sql`
    ${strangers(ours)},
    never_polled as (
      select ${requests.request_id}, ${requests.tracked_at} as due_at from mediadock.requests
      where ${isNeverPolled({ now: at, stuckAfterSeconds: deps.stuckAfterSeconds })}
        and ${lineOfRow(ours)} <> all(${sql.param([...resting])}::text[]) and ${only}
      order by ${requests.tracked_at} limit ${limit} for update skip locked
    ),
    -- The rows are selected before any is locked, since up to the limit is read for each name.
    oldest as materialized (
      select of_line.* from stranger as line cross join lateral (
        select ${requests.request_id}, ${requests.next_poll_at} as due_at from mediadock.requests
        where ${isOfLine} and ${requests.next_poll_at} <= ${at} and ${only}
        order by ${requests.next_poll_at} limit ${limit}
      ) as of_line
      where '' <> all(${sql.param([...resting])}::text[]) order by of_line.due_at limit ${limit}
    ),
    of_strangers as (
      select ${requests.request_id}, ${requests.next_poll_at} as due_at from mediadock.requests
      where ${requests.request_id} = any(array(select request_id from oldest))
        and ${requests.next_poll_at} <= ${at} for update skip locked
    ),
    due as (
      select *, ${isScheduled}, row_number() over (order by due_at) as place
      from (select * from never_polled union all select * from of_strangers) as ways order by place limit ${limit}
    )`,
  )
}

/**
 * Claims one request in any state. Waits briefly for a lock on its row. Undefined if the lock stays, or the request is
 * not tracked.
 */
export async function claimOne(deps: ClaimDeps, requestId: string): Promise<Due | undefined> {
  try {
    const [one] = await claim(
      deps,
      sql`
      due as (
        select ${requests.request_id}, coalesce(${requests.next_poll_at}, ${requests.tracked_at}) as due_at,
          ${isScheduled}, 1 as place
        from (select set_config('lock_timeout', ${`${lockWaitMs}ms`}, true)) as patience, mediadock.requests
        where ${requests.request_id} = ${requestId} limit 1 for update of requests
      )`,
    )
    return one
  } catch (error) {
    if (metALock(error)) return undefined
    throw error
  }
}

/**
 * Claims `due` without the requests set aside. If Postgres refuses that because of one row, claims one by one and sets
 * aside the refused ones.
 */
async function claimApart(deps: ClaimDeps, due: (only: SQL) => SQL): Promise<Due[]> {
  const { db, setAside } = deps
  for (let refused = 0; ; refused += 1) {
    const aside = setAside?.ids() ?? []
    const others = due(aside.length === 0 ? sql`true` : sql`${requests.request_id} <> all(${sql.param(aside)}::uuid[])`)
    try {
      return await claim(deps, others)
    } catch (error) {
      // The limit of consecutive claims that meet only refused rows.
      if (!isAboutTheRow(error) || setAside === undefined || refused === 8) throw error
    }
    const claimed: Due[] = []
    const rows = await db.execute<{ request_id: string }>(sql`with recursive ${others} select request_id from due`)
    for (const { request_id: id } of rows) {
      try {
        claimed.push(...(await claim(deps, due(sql`${requests.request_id} = ${id}::uuid`))))
      } catch (error) {
        if (!isAboutTheRow(error)) throw error
        setAside.add(id, error)
      }
    }
    if (claimed.length > 0) return claimed
  }
}
