import type { Logger } from '../../platform/logger.ts'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { createLeaseKeeper, leaseSeconds, type LeaseKeeper } from '../../platform/postgres/lease-keeper.ts'
import { leaseOf } from '../../platform/postgres/lease.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { executePrepared } from '../../platform/postgres/prepared.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import { callBudgets } from '../domain/budgets-schema.ts'
import type { Keys } from '../domain/keys.ts'
import * as schema from '../domain/schema.ts'
import type { SetAside } from './set-aside.ts'

const budget = columnsOf(callBudgets)
const requests = columnsOf(schema.requests)
const r = columnsOf(schema.requests, 'r')

/** A request that this process is polling. */
export type HeldPoll = { request_id: string; claims: number }

/** The lease of a poll, for statements with the alias `r`. */
export const pollLease = leaseOf('r', {
  key: { request_id: schema.requests.request_id },
  due_at: schema.requests.next_poll_at,
  claims: schema.requests.poll_claims,
})

type PollKeeperDeps = { db: Database; time: SharedTime; logger: Logger }

/**
 * Renews the polls of a process. A landing that makes a request due at once ends the lease; a renewal does not undo
 * that.
 */
export function createPollKeeper({ db, time, logger }: PollKeeperDeps): LeaseKeeper<HeldPoll> {
  return createLeaseKeeper<HeldPoll>({
    renew: (held) => {
      const now = time()
      return pollLease.renew(db, held, { now, seconds: leaseSeconds, only: sql`${r.next_poll_at} > ${now}` })
    },
    logger,
  })
}

/** The dependencies of claiming and giving back. */
export type ClaimDeps = {
  db: Database
  keys: () => Keys
  time: SharedTime
  stuckAfterSeconds: number
  /** Renews the polls that are under way. */
  polls: LeaseKeeper<HeldPoll>
  /** The requests that callers wait for. They are claimed first. */
  awaited?: (() => readonly string[]) | undefined
  setAside?: SetAside | undefined
}

type ClaimedRow = RowOf<
  typeof schema.requests,
  'request_id' | 'source_name' | 'external_id' | 'model' | 'key_name' | 'sandbox' | 'polls'
> &
  HeldPoll & {
    /** True if only a delivery signed by a sandbox key gave the environment, so it may be wrong. */
    only_sandbox_signed: boolean
    /** At the claim. */
    seconds_since_tracked: number
    due_at: string
    /** The provider did not know the request when it was asked last. */
    is_unknown: boolean
    is_extra: boolean
    /** For an extra poll: the time at which the request is polled by its schedule, if any. */
    scheduled_at: string | null
  }

/** A claimed request. `endRenewals` stops renewing its lease. */
export type Due = ClaimedRow & { endRenewals: () => Promise<void> }

/** Claims the rows of `due`, in the order of `place`. */
export async function claim({ db, time, polls }: ClaimDeps, due: SQL): Promise<Due[]> {
  const now = time()
  const claimedAtMs = performance.now()
  const rows = await executePrepared<ClaimedRow>(
    db,
    sql`
    with recursive ${due},
    claimed as (
      update mediadock.requests r
      set ${pollLease.claim(now, leaseSeconds)}, ${requests.polls} = ${r.polls} + 1, ${requests.doubt_poll_at} = null,
        -- At least the end of the last outage, which may have been written by a clock that is ahead. An earlier poll
        -- would count as held up by that outage again.
        ${requests.polled_at} = greatest(${now}, (select max(${budget.recovered_at}) from mediadock.call_budgets))
      from due where ${r.request_id} = due.request_id
      returning ${list(r, 'request_id', 'source_name', 'external_id', 'model', 'key_name', 'sandbox', 'polls')},
        ${r.poll_claims} as claims, due.due_at, due.scheduled_at, due.is_extra, due.place,
        ${r.landed_at} is null and coalesce(${r.poll_outcome} in ('not_found', 'not_found_yet'), false)
          as is_unknown,
        coalesce(${r.key_source} = 'landed' and coalesce(${r.signed_sandbox}, ${r.sandbox}), false)
          as only_sandbox_signed,
        extract(epoch from ${now} - ${r.tracked_at})::float8 as seconds_since_tracked
    )
    select * from claimed order by place`,
  )
  return rows.map((row) => ({ ...row, endRenewals: polls.keep(row, claimedAtMs).letGo }))
}
