import { turnOf } from '../../platform/fair-share.ts'
import type { Logger } from '../../platform/logger.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { faultOf, metALock } from '../../platform/postgres/errors.ts'
import { createLeaseKeeper, leaseSeconds } from '../../platform/postgres/lease-keeper.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { executePrepared } from '../../platform/postgres/prepared.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import { fromSandbox, sandboxOf, type Environment } from '../domain/environment.ts'
import type { Keys } from '../domain/keys.ts'
import { afterClaim, pollLease } from '../domain/poll-schedule.ts'
import type { requests } from '../domain/schema.ts'
import { isHeldUp, isOverdueWithoutPollTime, isScheduledForKey, pollQueues, queueOfRow, strangers } from './due.ts'
import type { SetAside } from './set-aside.ts'

/** A request that this process is polling. */
type HeldPoll = { request_id: string; claims: number }

/**
 * Renews the leases of this process's polls. A poll whose lease is lost is not cut, since its call is spent. Its result
 * still lands, but end() of polling.ts leaves the schedule to the process that claims the request next.
 */
export function createPollKeeper({ db, time, logger }: { db: Database; time: SharedTime; logger: Logger }) {
  const renew = (held: readonly HeldPoll[]) => pollLease.renew(db, held, { now: time(), seconds: leaseSeconds })
  const keeper = createLeaseKeeper<HeldPoll>({ renew, logger })
  return (poll: HeldPoll, claimedAtMs: number) => keeper.keep(poll, claimedAtMs).letGo
}

/** The dependencies of claiming polls, and of ending them. */
export type ClaimDeps = {
  db: Database
  keys: () => Keys
  time: SharedTime
  stuckAfterSeconds: number
  /** Renews the lease of a poll until the returned function is called. */
  keepLease: ReturnType<typeof createPollKeeper>
  /** The requests that callers wait for. They are claimed first. */
  awaited: () => readonly string[]
  setAside: SetAside
}

type ClaimedRow = RowOf<
  typeof requests,
  'request_id' | 'source_name' | 'external_id' | 'model' | 'key_name' | 'polls'
> &
  HeldPoll & {
    sandbox: boolean | null
    /** True if only a delivery signed by a sandbox key gave the environment, so it may be wrong. */
    only_sandbox_signed: boolean
    /** At the claim. */
    seconds_since_tracked: number
    /** Since it was tracked, or landed if that was later. */
    seconds_unchanged: number
    /** The provider did not know the request when it was asked last. */
    is_unknown: boolean
    is_extra: boolean
    /** The time of the extra poll that was asked for before this poll. */
    doubt_poll_at: string | null
  }

/** A request with the claim of its poll. `endRenewals` stops renewing its lease. */
export type ClaimedPoll = Omit<ClaimedRow, 'sandbox'> & {
  environment: Environment | undefined
  endRenewals: () => Promise<void>
}

/** How many to claim, and of which poll queues none: see createRestingQueues(). */
type Wanted = { limit: number; resting: ReadonlySet<string>; restingExtra?: ReadonlySet<string> }

/**
 * Claims requests whose next poll is due, whose outage is over, or that wait for an extra poll: round-robin by key.
 * Within a key, requests that callers wait for come first, then ended requests that are still polled, then the longest
 * due, and extra polls come last. So requests that no key knows do not delay the completion of results. Each queue is
 * read by an index, so the cost does not depend on the number of due requests. Scheduled polls of unknown keys are left
 * to claimForRun().
 */
export async function claimDue(deps: ClaimDeps, { limit, resting, restingExtra }: Wanted): Promise<ClaimedPoll[]> {
  const at = deps.time()
  const names = deps.keys().all.map(({ name }) => name)
  const ours = sql`${sql.param(names)}::text[]`
  const queues = ['', ...names].filter((name) => !resting.has(name))
  const isTime = sql`next_poll_at <= ${at}`
  /** Up to `limit` rows of each queue, in the order of an index. */
  const ofQueues = (condition: SQL, order: SQL) => sql`
      select queue.key_name, in_queue.* from queue cross join lateral (
        select request_id, least(next_poll_at, ${at}) as due_at from mediadock.requests r
        where ${isScheduledForKey} and ${condition} order by ${order} limit ${limit} for update skip locked
      ) as in_queue`
  return claimApart(
    deps,
    (only) => sql`
    ${pollQueues(queues)},
    scheduled as (${ofQueues(sql`${isTime} and ${only}`, sql`next_poll_at`)}),
    ended as (${ofQueues(sql`landed_at is not null and ${isTime} and ${only}`, sql`next_poll_at`)}),
    held_up as (${ofQueues(sql`${isHeldUp} and ${only}`, sql`polled_at`)}),
    -- Conditions that match only the index of the ids: a plan made for empty tables could read all due requests.
    awaited as (
      select coalesce(key_name, '') as key_name, request_id, next_poll_at as due_at from mediadock.requests r
      where request_id = any(${sql.param([...deps.awaited()])}::uuid[]) and coalesce(${isTime}, false)
        and array_position(${sql.param(queues)}::text[], coalesce(key_name, '')) is not null and ${only}
      limit ${limit} for update skip locked
    ),
    extra as (
      select ${queueOfRow(ours)} as key_name, request_id, doubt_poll_at as due_at from mediadock.requests r
      where doubt_poll_at <= ${at} and confirmed_at is null
        and ${queueOfRow(ours)} <> all(${sql.param([...(restingExtra ?? [])])}::text[]) and ${only}
      order by doubt_poll_at limit ${limit} for update skip locked
    ),
    found as (
      select distinct on (request_id) * from (
        select *, false as is_extra, 0 as rank from awaited
        union all select *, false, 1 from ended
        union all select *, false, 2 from scheduled
        union all select *, false, 2 from held_up
        union all select *, true, 3 from extra
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
 * Claims what only runs of the reconciler poll: overdue requests that have no time for a poll yet, and due requests of
 * unknown keys; oldest first. The index skips due requests of known keys, which claimDue() claims.
 */
export function claimForRun(deps: ClaimDeps, { limit, resting }: Wanted): Promise<ClaimedPoll[]> {
  const at = deps.time()
  const ours = sql`${sql.param(deps.keys().all.map(({ name }) => name))}::text[]`
  const rests = sql`${sql.param([...resting])}::text[]`
  return claimApart(
    deps,
    (only) => sql`
    ${strangers(ours)},
    without_time as (
      select request_id, tracked_at as due_at from mediadock.requests r
      where ${isOverdueWithoutPollTime({ now: at, stuckAfterSeconds: deps.stuckAfterSeconds })}
        and ${queueOfRow(ours)} <> all(${rests}) and ${only}
      order by tracked_at limit ${limit} for update skip locked
    ),
    -- The rows are selected before any is locked, since up to the limit is read for each name.
    oldest as materialized (
      select in_queue.* from stranger as queue cross join lateral (
        select request_id, next_poll_at as due_at from mediadock.requests r
        where ${isScheduledForKey} and next_poll_at <= ${at} and ${only}
        order by next_poll_at limit ${limit}
      ) as in_queue
      where '' <> all(${rests}) order by in_queue.due_at limit ${limit}
    ),
    of_strangers as (
      select request_id, next_poll_at as due_at from mediadock.requests r
      where request_id = any(array(select request_id from oldest)) and next_poll_at <= ${at} and ${only}
      for update skip locked
    ),
    due as (
      select *, false as is_extra, row_number() over (order by due_at) as place
      from (select * from without_time union all select * from of_strangers) as ways order by place limit ${limit}
    )`,
  )
}

/** An operator waits for the answer. Landings hold locks for milliseconds, but another transaction may never end. */
const lockWaitMs = 2000

/**
 * Claims one request in any state, also from another claimant. Waits briefly for a lock on its row. Undefined if the
 * lock stays, or the request is not tracked.
 */
export async function claimOne(deps: ClaimDeps, requestId: string): Promise<ClaimedPoll | undefined> {
  try {
    const [one] = await claim(
      deps,
      sql`
      due as (
        select request_id, next_poll_at as due_at, false as is_extra, 1 as place
        from (select set_config('lock_timeout', ${`${lockWaitMs}ms`}, true)) as lock_wait, mediadock.requests
        where request_id = ${requestId} limit 1 for update of requests
      )`,
    )
    return one
  } catch (error) {
    if (metALock(error)) return undefined
    throw error
  }
}

/**
 * Claims `due` without the requests that are being polled and those set aside. If Postgres refuses that because of one
 * row, claims one by one and sets aside the refused ones.
 */
async function claimApart(deps: ClaimDeps, due: (only: SQL) => SQL): Promise<ClaimedPoll[]> {
  const { db, setAside } = deps
  const isFree = pollLease.isFree(deps.time())
  for (let refused = 0; ; refused += 1) {
    const aside = setAside.ids()
    const others = due(aside.length === 0 ? isFree : sql`${isFree} and request_id <> all(${sql.param(aside)}::uuid[])`)
    try {
      return await claim(deps, others)
    } catch (error) {
      // The limit of consecutive claims that meet only refused rows.
      if (faultOf(error) === 'server' || refused === 8) throw error
    }
    const claimed: ClaimedPoll[] = []
    const rows = await db.execute<{ request_id: string }>(sql`with recursive ${others} select request_id from due`)
    for (const { request_id: id } of rows) {
      try {
        claimed.push(...(await claim(deps, due(sql`${isFree} and request_id = ${id}::uuid`))))
      } catch (error) {
        if (faultOf(error) !== 'server') setAside.add(id, error)
        else if (claimed.length === 0) throw error
        // Those that are claimed must be polled, since their leases are renewed until then.
        else return claimed
      }
    }
    if (claimed.length > 0) return claimed
  }
}

/** Claims the rows of `due`, in the order of `place`. */
async function claim({ db, time, keepLease }: ClaimDeps, due: SQL): Promise<ClaimedPoll[]> {
  const now = time()
  const claimedAtMs = performance.now()
  const rows = await executePrepared<ClaimedRow>(
    db,
    sql`
    with recursive ${due},
    claimed as (
      update mediadock.requests r
      set ${afterClaim(now, leaseSeconds)}, polls = r.polls + 1,
        -- Not before the end of the last outage (recovered_at), which is later than now if the clock of Postgres has
        -- gone back since. Otherwise this poll would count as held up by that outage again: see isHeldUp in due.ts.
        polled_at = greatest(${now}, (select max(recovered_at) from mediadock.call_budgets))
      from due where r.request_id = due.request_id
      returning r.request_id, r.source_name, r.external_id, r.model, r.key_name, r.polls,
        ${sandboxOf('r')} as sandbox,
        r.poll_claims as claims, due.is_extra, due.place, r.doubt_poll_at,
        r.landed_at is null and coalesce(r.poll_outcome in ('not_found', 'not_found_yet'), false) as is_unknown,
        coalesce(r.key_source = 'landed' and coalesce(r.signed_sandbox, r.sandbox), false) as only_sandbox_signed,
        extract(epoch from ${now} - r.tracked_at)::float8 as seconds_since_tracked,
        extract(epoch from ${now} - greatest(r.tracked_at, r.landed_at))::float8 as seconds_unchanged
    )
    select * from claimed order by place`,
  )
  return rows.map(({ sandbox, ...row }) => ({
    ...row,
    environment: fromSandbox(sandbox),
    endRenewals: keepLease(row, claimedAtMs),
  }))
}
