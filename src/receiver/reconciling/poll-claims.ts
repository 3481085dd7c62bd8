import { turnOf } from '../../platform/fair-share.ts'
import { columnsOf } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
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
  /** Lines without calls at present. */
  resting: ReadonlySet<string>
}

/**
 * Claims requests whose next poll is due, or whose outage is over: round-robin by key. Within a key, requests that
 * callers wait for come first, then incomplete results, then the longest due, so requests that no key knows do not
 * delay incomplete results. Each line is read by an index, so the cost does not depend on the number of due requests.
 * Requests of unknown keys are left to claimOverdue().
 */
export async function claimScheduled(deps: ClaimDeps, { limit, resting }: Wanted): Promise<Due[]> {
  const at = deps.time()
  const lines = ['', ...deps.keys().all.map(({ name }) => name)].filter((line) => !resting.has(line))
  if (lines.length === 0) return []
  const awaited = sql`${sql.param([...(deps.awaited?.() ?? [])])}::uuid[]`
  return claimApart(
    deps,
    (isNotSetAside) => sql`
    ${lineOfEach(lines)},
    scheduled as (
      select line.key_name, of_line.* from line cross join lateral (
        select ${requests.request_id}, ${requests.next_poll_at} as due_at from mediadock.requests
        where ${isOfLine} and ${requests.next_poll_at} <= ${at} and ${isNotSetAside}
        order by ${requests.next_poll_at} limit ${limit} for update skip locked
      ) as of_line
    ),
    incomplete as (
      select line.key_name, of_line.* from line cross join lateral (
        select ${requests.request_id}, ${requests.next_poll_at} as due_at from mediadock.requests
        where ${isOfLine} and ${requests.landed_at} is not null and ${requests.next_poll_at} <= ${at}
          and ${isNotSetAside}
        order by ${requests.next_poll_at} limit ${limit} for update skip locked
      ) as of_line
    ),
    held_up as (
      select line.key_name, of_line.* from line cross join lateral (
        select ${requests.request_id}, least(${requests.next_poll_at}, ${at}) as due_at from mediadock.requests
        where ${isOfLine} and ${isHeldUp(sql`line.recovered_at`)} and ${isNotSetAside}
        order by ${requests.polled_at} limit ${limit} for update skip locked
      ) as of_line
    ),
    -- Conditions that match only the index of the ids: a plan made for empty tables could read all due requests.
    awaited as (
      select coalesce(${requests.key_name}, '') as key_name, ${requests.request_id}, ${requests.next_poll_at} as due_at
      from mediadock.requests
      where ${requests.request_id} = any(${awaited}) and coalesce(${requests.next_poll_at} <= ${at}, false)
        and array_position(${sql.param(lines)}::text[], coalesce(${requests.key_name}, '')) is not null
        and ${isNotSetAside}
      limit ${limit} for update skip locked
    ),
    found as (
      select request_id, min(key_name) as key_name, min(due_at) as due_at, min(rank) as rank
      from (
        select *, 0 as rank from awaited
        union all select *, 1 from incomplete
        union all select *, 2 from scheduled
        union all select *, 2 from held_up
      ) as ways
      group by request_id
    ),
    due as (
      select request_id, due_at, rank, ${turnOf(sql`key_name`, sql`rank, due_at`)} as turn,
        (select max(recovered_at) from line) as recovered_at
      from found order by turn, rank, due_at limit ${limit}
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
    (isNotSetAside) => sql`
    ${strangers(ours)},
    never_polled as (
      select ${requests.request_id}, ${requests.tracked_at} as due_at from mediadock.requests
      where ${isNeverPolled({ now: at, stuckAfterSeconds: deps.stuckAfterSeconds })}
        and case when ${requests.key_name} = any(${ours}) then ${requests.key_name} else ''
          end <> all(${sql.param([...resting])}::text[])
        and ${isNotSetAside}
      order by ${requests.tracked_at} limit ${limit} for update skip locked
    ),
    -- The rows are selected before any is locked, since up to the limit is read for each name.
    oldest as materialized (
      select of_line.* from stranger as line cross join lateral (
        select ${requests.request_id}, ${requests.next_poll_at} as due_at from mediadock.requests
        where ${isOfLine} and ${requests.next_poll_at} <= ${at} and ${isNotSetAside}
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
      select request_id, due_at, 1 as rank, 1 as turn, ${at} as recovered_at
      from (select * from never_polled union all select * from of_strangers) as ways order by due_at limit ${limit}
    )`,
  )
}

/**
 * Claims requests that wait for an extra poll, the longest due first: polls beside the schedule, since a delivery
 * raised doubt or a caller waits for progress. `resting`: lines without calls for extra polls.
 */
export function claimExtra(deps: ClaimDeps, { limit, resting }: Wanted): Promise<Due[]> {
  const at = deps.time()
  const ours = sql`${sql.param(deps.keys().all.map(({ name }) => name))}::text[]`
  return claimApart(
    deps,
    (isNotSetAside) => sql`
    due as (
      select ${requests.request_id}, ${requests.doubt_poll_at} as due_at, ${requests.next_poll_at} as scheduled_at,
        1 as rank, 1 as turn, ${at} as recovered_at
      from mediadock.requests
      where ${requests.doubt_poll_at} <= ${at} and ${requests.confirmed_at} is null
        and case when ${requests.key_name} = any(${ours}) then ${requests.key_name} else ''
          end <> all(${sql.param([...resting])}::text[])
        and ${isNotSetAside}
      order by ${requests.doubt_poll_at} limit ${limit} for update skip locked
    )`,
    { isExtra: true },
  )
}

/**
 * Claims one request in any state. Waits briefly for a lock on its row. Undefined if the lock stays, or the request is
 * not tracked.
 */
export async function claimOne(deps: ClaimDeps, requestId: string): Promise<Due | undefined> {
  try {
    const [one] = await claimWhere(deps, sql`${requests.request_id} = ${requestId}`, lockWaitMs)
    return one
  } catch (error) {
    if (metALock(error)) return undefined
    throw error
  }
}

function claimWhere(deps: ClaimDeps, condition: SQL, waitMs?: number): Promise<Due[]> {
  const now = deps.time()
  const patience =
    waitMs === undefined ? sql`` : sql`(select set_config('lock_timeout', ${`${waitMs}ms`}, true)) as patience,`
  return claim(
    deps,
    sql`
    due as (
      select ${requests.request_id}, coalesce(${requests.next_poll_at}, ${requests.tracked_at}) as due_at, 1 as rank,
        1 as turn, ${now} as recovered_at
      from ${patience} mediadock.requests
      where ${condition} limit 1
      for update of requests ${waitMs === undefined ? sql`skip locked` : sql``}
    )`,
  )
}

/**
 * Claims `due` without the requests set aside. If Postgres refuses that because of one row, claims one by one and sets
 * aside the refused ones.
 */
async function claimApart(deps: ClaimDeps, due: (isNotSetAside: SQL) => SQL, { isExtra = false } = {}): Promise<Due[]> {
  const { db, setAside } = deps
  const at = deps.time()
  for (let refused = 0; ; refused += 1) {
    const aside = setAside?.ids() ?? []
    const others = due(aside.length === 0 ? sql`true` : sql`${requests.request_id} <> all(${sql.param(aside)}::uuid[])`)
    try {
      return await claim(deps, others, { isExtra })
    } catch (error) {
      // The limit of consecutive claims that meet only refused rows.
      if (!isAboutTheRow(error) || setAside === undefined || refused === 8) throw error
    }
    const claimed: Due[] = []
    const rows = await db.execute<{ request_id: string }>(sql`with recursive ${others} select request_id from due`)
    for (const { request_id: id } of rows) {
      const isIt = sql`${requests.request_id} = ${id}::uuid`
      try {
        claimed.push(
          // The condition is repeated, since another replica may have claimed it meanwhile. Few requests wait for an
          // extra poll, so a look through all of them for this one is cheap.
          ...(await (isExtra
            ? claim(deps, due(isIt), { isExtra })
            : claimWhere(deps, sql`${isIt} and coalesce(${requests.next_poll_at} <= ${at}, true)`))),
        )
      } catch (error) {
        if (!isAboutTheRow(error)) throw error
        setAside.add(id, error)
      }
    }
    if (claimed.length > 0) return claimed
  }
}
