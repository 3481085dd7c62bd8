import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { leaseOf } from '../../platform/postgres/lease.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { later, postgresTime } from '../../platform/postgres/time.ts'
import type { Output, RequestStatus } from '../../wire/schemas.ts'
import { moveCredits } from '../accounts/ledger.ts'
import type { Input } from '../catalog/input.ts'
import type { EngineChoice, RemoteJob } from '../domain/engine-choice.ts'
import { type Environment, requests } from '../domain/schema.ts'
import { type Ending, type NewDelivery, notificationOf } from '../webhooks/notification.ts'
import { insertDelivery } from '../webhooks/outbox.ts'

/**
 * A request that this process runs until its lease ends. `attempts` is the number of this run, above 1 after a worker
 * died or an engine failed.
 */
export type ClaimedRequest = RowOf<
  typeof requests,
  | 'id'
  | 'claims'
  | 'api_key_id'
  | 'environment'
  | 'model'
  | 'cost'
  | 'webhook_url'
  | 'faults'
  | 'attempts'
  | 'remote_job'
> & {
  input: Input
  engine: EngineChoice
}

const lease = leaseOf('r', {
  key: { id: requests.id },
  due_at: requests.lease_until,
  claims: requests.claims,
})

export type ClaimOfRequests = { environment: Environment; limit: number; leaseSeconds: number; now: SQL }

/** Claims requests: first running ones whose lease or pause has ended, then the head of the queue. */
export async function claimRequests(
  db: Database,
  { environment, limit, leaseSeconds, now }: ClaimOfRequests,
): Promise<ClaimedRequest[]> {
  return await db.execute<ClaimedRequest>(sql`
    with orphans as (
      select r.id from provider.requests r
      where r.status = 'IN_PROGRESS' and r.environment = ${environment} and ${lease.isDue(now)}
      order by r.lease_until limit ${limit}::int for update skip locked
    ), heads as (
      select r.id from provider.requests r where r.status = 'IN_QUEUE' and r.environment = ${environment}
      order by r.turn, r.seq limit greatest(${limit}::int - (select count(*) from orphans), 0)
      for update skip locked
    )
    update provider.requests r
    set status = 'IN_PROGRESS', ${lease.claim(now, leaseSeconds)},
      attempts = r.attempts + 1, started_at = coalesce(r.started_at, ${now})
    from (select id from orphans union all select id from heads) next
    where r.id = next.id
    returning r.id, r.claims, r.api_key_id, r.environment, r.model, r.input, r.engine, r.remote_job, r.cost,
      r.webhook_url, r.faults, r.attempts`)
}

type Progress = { progress: number; logLines: readonly string[]; leaseSeconds: number; now: SQL }

/**
 * Records progress (spec, progress and logs) and renews the lease. Returns false if the lease was lost, because the
 * request was canceled or taken over.
 */
export async function recordProgress(
  db: Database,
  claimed: ClaimedRequest,
  { progress, logLines, leaseSeconds, now }: Progress,
): Promise<boolean> {
  return lease.write(
    db,
    claimed,
    sql`progress = greatest(r.progress, ${progress}::int), lease_until = ${later(now, leaseSeconds)},
      logs = (r.logs || ${sql.param([...logLines])}::text[])[:500]`,
  )
}

/** Stores the remote job for the worker that may take the request over. Returns false if the lease was lost. */
export async function recordRemoteJob(db: Database, claimed: ClaimedRequest, remoteJob: RemoteJob): Promise<boolean> {
  return lease.write(db, claimed, sql`remote_job = ${JSON.stringify(remoteJob)}::jsonb`)
}

export async function isCanceled(db: Database, id: string): Promise<boolean> {
  const rows = await db.execute(sql`select from provider.requests where id = ${id} and status = 'CANCELED'`)
  return rows.length > 0
}

/** Postpones a request after a failure of its engine. */
export async function putRequestOff(
  db: Database,
  claimed: ClaimedRequest,
  pauseSeconds: number,
  now: SQL,
): Promise<void> {
  await lease.write(db, claimed, lease.putOff(now, { pauseSeconds, trouble: 'the engine failed' }))
}

/** Returns a request when this process stops. Another process may claim it at once, and this run does not count. */
export async function giveRequestBack(db: Database, claimed: ClaimedRequest, now: SQL): Promise<void> {
  await lease.write(db, claimed, sql`${lease.giveBack(now)}, attempts = r.attempts - 1`)
}

/** Ends a running request once: settles or refunds, and puts its notification into the outbox. */
export async function finishRequest(
  db: Database,
  claimed: ClaimedRequest,
  ending: Ending,
  { now, random, hasWebhook = true }: { now: SQL; random: () => number; hasWebhook?: boolean },
): Promise<boolean> {
  const delivery = hasWebhook ? notificationOf({ ...claimed, requestId: claimed.id }, ending, random) : undefined
  const guard = sql`r.status = 'IN_PROGRESS' and ${lease.isHeld(claimed)}`
  return end(db, { id: claimed.id, guard, ending, delivery, now })
}

/**
 * Cancels a request that has not ended (spec, CANCELED) and refunds it. The API cancels only queued requests
 * (`whileQueuedOnly`). Console and command line cancel running ones too.
 */
export async function cancelRequest(db: Database, id: string, whileQueuedOnly: boolean): Promise<boolean> {
  const guard = whileQueuedOnly ? sql`r.status = 'IN_QUEUE'` : sql`r.status in ('IN_QUEUE', 'IN_PROGRESS')`
  return end(db, { id, guard, ending: { kind: 'canceled' }, delivery: undefined, now: postgresTime() })
}

type End = { id: string; guard: SQL; ending: Ending; delivery: NewDelivery | undefined; now: SQL }

const statusOf = { completed: 'COMPLETED', failed: 'FAILED', canceled: 'CANCELED' } as const satisfies Record<
  Ending['kind'],
  RequestStatus
>

/** The only way to a terminal state for a queued request. One statement, guarded by the state. */
async function end(db: Database, { id, guard, ending, delivery, now }: End): Promise<boolean> {
  const output: Output | null = ending.kind === 'completed' ? ending.output : null
  const error = ending.kind === 'failed' ? ending.error : null
  const moved = sql`(select account_id, id as request_id, cost as amount, ${now} as at from ended
    where environment = 'live')`
  const rows = await db.execute(sql`
    with before as (
      select r.id, r.status from provider.requests r where r.id = ${id} and ${guard} for update
    ), ended as (
      update provider.requests r
      set status = ${statusOf[ending.kind]}, completed_at = ${now}, ${lease.giveBack(now)},
        output = ${output === null ? null : JSON.stringify(output)}::jsonb,
        progress = case when ${ending.kind} = 'completed' then 100 else r.progress end,
        error_code = ${error?.code ?? null}, error_message = ${error?.message ?? null}
      from before where r.id = before.id
      returning r.id, r.account_id, r.api_key_id, r.environment, r.cost, r.faults, r.turn, before.status as was
    ), entries as (${moveCredits(ending.kind === 'completed' ? 'settle' : 'refund', moved)}
    ), refunded as (${ending.kind === 'completed' ? sql`select 1` : refund}
    ), notified as (${insertDelivery(delivery, sql`ended`, now)}
    )
    select id from ended`)
  return rows.length > 0
}

/**
 * Refunds the credits of a live request, and returns the turn of a request that never ran. Otherwise a mass cancel
 * would move its account to the end of the queue. Only the account's last turn is returned, so that no turn is assigned
 * twice.
 */
const refund = sql`
  update provider.accounts a
  set available = a.available + case when e.environment = 'live' then e.cost else 0 end,
    last_turn = ${turnBefore(sql`a.last_turn`, 'live')},
    last_sandbox_turn = ${turnBefore(sql`a.last_sandbox_turn`, 'sandbox')}
  from ended e where a.id = e.account_id`

/** The last turn of the account's waiting requests, or 0: then the next submit gets the lowest turn in the queue. */
function turnBefore(last: SQL, environment: Environment): SQL {
  return sql`case when e.was = 'IN_QUEUE' and e.environment = ${environment} and e.turn = ${last} then coalesce((
      select max(r.turn) from provider.requests r where r.account_id = e.account_id and r.status = 'IN_QUEUE'
        and r.environment = ${environment} and r.id <> e.id), 0)
    else ${last} end`
}
