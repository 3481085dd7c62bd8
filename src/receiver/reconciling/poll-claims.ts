import type { Logger } from '../../platform/logger.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { faultOf, metALock } from '../../platform/postgres/errors.ts'
import { createLeaseKeeper, leaseSeconds } from '../../platform/postgres/lease-keeper.ts'
import type { Claim } from '../../platform/postgres/lease.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { executePrepared } from '../../platform/postgres/prepared.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import { createTimedSet } from '../../platform/timed-set.ts'
import { fromSandbox, sandboxOf, type Environment } from '../domain/environment.ts'
import type { Keys } from '../domain/keys.ts'
import { afterClaim, pollLease } from '../domain/poll-schedule.ts'
import type { requests } from '../domain/schema.ts'
import { duePolls, type Wanted } from './due.ts'

/*
 * Claims due polls. Each claim is one statement: the part `due` finds requests (due.ts), and the part `claimed` begins
 * their leases (claimPolls(), at the end). The leases are renewed until the poll ends (polling.ts).
 */

export type ClaimDeps = {
  db: Database
  keys: () => Keys
  time: SharedTime
  stuckAfterSeconds: number
  /** Renews the lease of a poll until the returned function is called. */
  keepLease: ReturnType<typeof createPollKeeper>
  /** The requests that callers wait for. They are claimed first. */
  awaited: () => readonly string[]
  setAside: ReturnType<typeof createSetAside>
}

/**
 * Renews the leases of this process's polls. A poll whose lease is lost is not cut, since its call is spent. Its result
 * still lands, but endPoll() leaves the schedule to the process that claims the request next.
 */
export function createPollKeeper({ db, time, logger }: { db: Database; time: SharedTime; logger: Logger }) {
  type HeldPoll = Claim<'request_id'>
  const renew = (held: readonly HeldPoll[]) => pollLease.renew(db, held, { now: time(), seconds: leaseSeconds })
  const keeper = createLeaseKeeper<HeldPoll>({ renew, logger })
  return (poll: HeldPoll, claimedAtMs: number) => keeper.keep(poll, claimedAtMs).letGo
}

/** A corrected trigger or constraint is noticed after this time. */
const setAsideMs = 300_000

/**
 * Keeps the requests that Postgres refuses to claim: claims leave them out for a while. In memory, since a row that
 * Postgres refuses to write cannot be marked there.
 */
export function createSetAside({ clock, logger }: { clock: () => Date; logger: Logger }) {
  const refused = createTimedSet(clock, setAsideMs)
  return {
    ids: () => [...refused.present()],
    add: (requestId: string, error: unknown) => {
      if (refused.present().size < 10_000) refused.add(requestId)
      logger.error(
        { err: error, request_id: requestId },
        'Postgres refuses to claim a request for polling: it is left out for 5 minutes',
      )
    },
  }
}

type ClaimedRow = RowOf<
  typeof requests,
  'request_id' | 'source_name' | 'external_id' | 'model' | 'key_name' | 'polls'
> & {
  claims: number
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

/** An operator waits for the answer. Landings hold locks for milliseconds, but another transaction may never end. */
const lockWaitMs = 2000

/**
 * Claims one request in any state, also from another claimant. Waits briefly for a lock on its row. Undefined if the
 * lock stays, or the request is not tracked.
 */
export async function claimOne(deps: ClaimDeps, requestId: string): Promise<ClaimedPoll | undefined> {
  try {
    const [one] = await claimPolls(
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

/** The limit of consecutive claims that meet only refused rows. */
const maxClaims = 9

/**
 * Claims the requests that `findDue` finds (due.ts), without those that are being polled or set aside. If Postgres
 * refuses that because of one row, claims one by one and sets aside the refused ones.
 */
export async function claimDue(deps: ClaimDeps, wanted: Wanted, findDue = duePolls): Promise<ClaimedPoll[]> {
  const { db, setAside, stuckAfterSeconds } = deps
  const now = deps.time()
  const facts = { ...wanted, now, keys: deps.keys(), awaited: deps.awaited(), stuckAfterSeconds }
  const find = (only: SQL) => findDue({ ...facts, only: sql`${pollLease.isFree(now)} and ${only}` })
  for (let claims = 1; ; claims += 1) {
    const due = find(sql`request_id <> all(${sql.param(setAside.ids())}::uuid[])`)
    try {
      return await claimPolls(deps, due)
    } catch (error) {
      if (faultOf(error) === 'server' || claims === maxClaims) throw error
    }
    const rows = await db.execute<{ request_id: string }>(sql`with recursive ${due} select request_id from due`)
    const claimed = await claimOneByOne(deps, rows, (id) => find(sql`request_id = ${id}::uuid`))
    if (claimed.length > 0) return claimed
  }
}

async function claimOneByOne(
  deps: ClaimDeps,
  rows: readonly { request_id: string }[],
  findOne: (id: string) => SQL,
): Promise<ClaimedPoll[]> {
  const claimed: ClaimedPoll[] = []
  for (const { request_id: id } of rows) {
    try {
      claimed.push(...(await claimPolls(deps, findOne(id))))
    } catch (error) {
      if (faultOf(error) !== 'server') deps.setAside.add(id, error)
      else if (claimed.length === 0) throw error
      // Those that are claimed must be polled, since their leases are renewed until then.
      else return claimed
    }
  }
  return claimed
}

/** Claims the rows of `due`, in the order of `place`. */
async function claimPolls({ db, time, keepLease }: ClaimDeps, due: SQL): Promise<ClaimedPoll[]> {
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
