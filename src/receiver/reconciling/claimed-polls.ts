import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { leaseSeconds, type LeaseKeeper } from '../../platform/postgres/lease-keeper.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { executePrepared } from '../../platform/postgres/prepared.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import type { Environment, Keys } from '../domain/keys.ts'
import * as schema from '../domain/schema.ts'
import { pollLease, type HeldPoll } from './poll-lease.ts'
import type { SetAside } from './set-aside.ts'

const requests = columnsOf(schema.requests)
const r = columnsOf(schema.requests, 'r')

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

export type Due = HeldPoll & {
  /** The source to which the request belongs: see storedName(). */
  sourceName: string | null
  /** The source's own id of the job, where that is not the request id. */
  externalId: string | null
  model: string | undefined
  /** The number of this poll. */
  polls: number
  keyName: string | undefined
  environment: Environment | undefined
  /** True if only a delivery signed by a sandbox key gave the environment, so it may be wrong. */
  onlySandboxSigned: boolean
  /** At the claim. */
  secondsSinceTracked: number
  dueAt: string
  /** The provider did not know the request when it was asked last. */
  isUnknown: boolean
  /** Set for an extra poll, with the time at which the request is polled by its schedule, if any. */
  extra?: { scheduledAt: string | null }
  /** Stops renewing its lease. */
  endRenewals: () => Promise<void>
}

/** Claims the rows of `due`, in their order. `recovered_at` clears the mark of an outage even if clocks differ. */
export async function claim({ db, time, polls }: ClaimDeps, due: SQL, { isExtra = false } = {}): Promise<Due[]> {
  const now = time()
  const claimedAtMs = performance.now()
  const rows = await executePrepared<ClaimedRow>(
    db,
    sql`
    with recursive ${due}
    update mediadock.requests r
    set ${pollLease.claim(now, leaseSeconds)}, ${requests.polls} = ${r.polls} + 1, ${requests.doubt_poll_at} = null,
      ${requests.polled_at} = greatest(${now}, due.recovered_at)
    from due where ${r.request_id} = due.request_id
    returning ${list(r, 'request_id', 'source_name', 'external_id', 'model', 'key_name', 'sandbox', 'polls')},
      ${r.poll_claims},
      due.due_at, due.rank, due.turn,
      ${r.landed_at} is null and coalesce(${r.poll_outcome} in ('not_found', 'not_found_yet'), false)
        as is_unknown,
      coalesce(${r.key_source} = 'landed' and coalesce(${r.signed_sandbox}, ${r.sandbox}), false)
        as only_sandbox_signed,
      extract(epoch from ${now} - ${r.tracked_at})::float8 as seconds_since_tracked,
      ${isExtra ? sql`due.scheduled_at` : sql`null`} as scheduled_at`,
  )
  // An update returns rows in no particular order.
  const inOrder = rows.toSorted(
    (a, b) => Number(a.turn) - Number(b.turn) || a.rank - b.rank || Date.parse(a.due_at) - Date.parse(b.due_at),
  )
  return inOrder.map((row) => {
    const held = { requestId: row.request_id, claims: row.poll_claims }
    return {
      ...held,
      sourceName: row.source_name,
      externalId: row.external_id,
      model: row.model ?? undefined,
      polls: row.polls,
      keyName: row.key_name ?? undefined,
      environment: row.sandbox === null ? undefined : row.sandbox ? 'sandbox' : 'live',
      onlySandboxSigned: row.only_sandbox_signed,
      secondsSinceTracked: row.seconds_since_tracked,
      dueAt: row.due_at,
      isUnknown: row.is_unknown,
      ...(isExtra && { extra: { scheduledAt: row.scheduled_at } }),
      endRenewals: polls.keep(held, claimedAtMs).letGo,
    }
  })
}

type ClaimedRow = RowOf<
  typeof schema.requests,
  'request_id' | 'source_name' | 'external_id' | 'model' | 'key_name' | 'sandbox' | 'polls' | 'poll_claims'
> & {
  only_sandbox_signed: boolean
  seconds_since_tracked: number
  due_at: string
  is_unknown: boolean
  scheduled_at: string | null
  rank: number
  turn: string
}
