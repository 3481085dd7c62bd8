import { sql, type SQL } from 'drizzle-orm'
import { answered } from '../../runtime/postgres/errors.ts'
import type { Database } from '../../runtime/postgres/postgres.ts'
import type { Output, RequestStatus } from '../../wire/schemas.ts'
import type { Faults } from '../domain/faults.ts'
import type { Input } from '../catalog/input.ts'
import { refundEntries, settleEntries } from '../accounts/ledger.ts'
import { type Ending, type NewDelivery, notificationOf } from '../webhooks/notification.ts'
import { insertDelivery } from '../webhooks/outbox.ts'
import type { Environment } from '../domain/schema.ts'

/** A request that this process runs until its lease ends. */
export type ClaimedRequest = {
  id: string
  token: string
  keyId: string
  environment: Environment
  model: string
  input: Input
  cost: string
  webhookUrl: string | null
  faults: Faults | null
  /** From 1; more than one after a process has died with it, or an engine has broken. */
  attempt: number
}

export type Claim = { environment: Environment; token: string; limit: number; leaseUntil: Date; now: Date }

/**
 * Takes the next requests: first those whose process has died (their lease has
 * ended), then the head of the queue.
 */
export async function claimRequests(db: Database, { environment, token, limit, leaseUntil, now }: Claim): Promise<ClaimedRequest[]> {
  const at = now.toISOString()
  const rows = answered(await db.execute<{
    id: string
    api_key_id: string
    environment: Environment
    model: string
    input: Input
    cost: string
    webhook_url: string | null
    faults: Faults | null
    attempts: number
  }>(sql`
    with orphans as (
      select id from provider.requests
      where status = 'IN_PROGRESS' and environment = ${environment} and lease_until <= ${at}
      order by lease_until limit ${limit}::int for update skip locked
    ), heads as (
      select id from provider.requests
      where status = 'IN_QUEUE' and environment = ${environment}
      order by turn, seq limit greatest(${limit}::int - (select count(*) from orphans), 0) for update skip locked
    )
    update provider.requests r
    set status = 'IN_PROGRESS', attempts = r.attempts + 1, lease_token = ${token}::uuid,
      lease_until = ${leaseUntil.toISOString()}, started_at = coalesce(r.started_at, ${at}::timestamptz)
    from (select id from orphans union all select id from heads) next
    where r.id = next.id
    returning r.id, r.api_key_id, r.environment, r.model, r.input, r.cost, r.webhook_url, r.faults, r.attempts`), 'claiming requests')
  return rows.map(({ api_key_id: keyId, webhook_url: webhookUrl, attempts: attempt, ...row }) => ({
    ...row,
    token,
    keyId,
    webhookUrl,
    attempt,
  }))
}

const maxLogLines = 500

/** Progress of a running request (spec, progress and logs). False when it is no longer ours: canceled, or taken over. */
export async function recordProgress(
  db: Database,
  { id, token }: ClaimedRequest,
  { progress, logLines, leaseUntil }: { progress: number; logLines: readonly string[]; leaseUntil: Date },
): Promise<boolean> {
  const rows = answered(await db.execute(sql`
    update provider.requests
    set progress = greatest(progress, ${progress}::int), lease_until = ${leaseUntil.toISOString()},
      logs = (logs || ${sql.param([...logLines])}::text[])[:${maxLogLines}::int]
    where id = ${id} and status = 'IN_PROGRESS' and lease_token = ${token}::uuid
    returning id`), `recording the progress of the request ${id}`)
  return rows.length > 0
}

/** Lets go of a request that is not finished: another attempt may start at `retryAt`. */
export async function releaseRequest(db: Database, { id, token }: ClaimedRequest, retryAt: Date, countAttempt: boolean): Promise<void> {
  answered(await db.execute(sql`
    update provider.requests
    set lease_token = null, lease_until = ${retryAt.toISOString()}, attempts = attempts - ${countAttempt ? 0 : 1}::int
    where id = ${id} and status = 'IN_PROGRESS' and lease_token = ${token}::uuid`), `letting go of the request ${id}`)
}

/** Ends a running request, once: settles or refunds, and puts its notification into the outbox. */
export async function finishRequest(
  db: Database,
  claimed: ClaimedRequest,
  ending: Ending,
  { now, random }: { now: Date; random: () => number },
): Promise<boolean> {
  const delivery = notificationOf({ ...claimed, requestId: claimed.id }, ending, now, random)
  const mine = sql`status = 'IN_PROGRESS' and lease_token = ${claimed.token}::uuid`
  return (await end(db, { id: claimed.id, guard: mine, ending, delivery, now })) !== undefined
}

/**
 * Cancels a request that has not ended (spec, CANCELED), with its refund.
 * `whileQueuedOnly` is what the API may do; console and command line may do more.
 */
export async function cancelRequest(db: Database, id: string, whileQueuedOnly: boolean, now: Date): Promise<boolean> {
  const guard = whileQueuedOnly ? sql`status = 'IN_QUEUE'` : sql`status in ('IN_QUEUE', 'IN_PROGRESS')`
  return (await end(db, { id, guard, ending: { kind: 'canceled' }, delivery: undefined, now })) !== undefined
}

type End = { id: string; guard: SQL; ending: Ending; delivery: NewDelivery | undefined; now: Date }

const statusOf = { completed: 'COMPLETED', failed: 'FAILED', canceled: 'CANCELED' } as const satisfies Record<Ending['kind'], RequestStatus>

/** The only way into a terminal state for a request that was queued. One statement, guarded by the state. */
async function end(db: Database, { id, guard, ending, delivery, now }: End): Promise<string | undefined> {
  const at = now.toISOString()
  const output: Output | null = ending.kind === 'completed' ? ending.output : null
  const error = ending.kind === 'failed' ? ending.error : null
  const moved = sql`(select account_id, id as request_id, cost as amount, ${at}::timestamptz as at from ended where environment = 'live')`
  const [row] = answered(await db.execute<{ id: string }>(sql`
    with before as (
      select id, status from provider.requests where id = ${id} and ${guard} for update
    ), ended as (
      update provider.requests r
      set status = ${statusOf[ending.kind]}, completed_at = ${at}, lease_token = null, lease_until = null,
        output = ${output === null ? null : JSON.stringify(output)}::jsonb,
        progress = case when ${ending.kind} = 'completed' then 100 else r.progress end,
        error_code = ${error?.code ?? null}, error_message = ${error?.message ?? null}
      from before where r.id = before.id
      returning r.id, r.account_id, r.api_key_id, r.environment, r.cost, r.faults, before.status as was
    ), entries as (${ending.kind === 'completed' ? settleEntries(moved) : refundEntries(moved)}
    ), refunded as (${ending.kind === 'completed' ? sql`select 1` : refund}
    ), notified as (${insertDelivery(delivery, sql`ended`, at)}
    )
    select id from ended`), `ending the request ${id}`)
  return row?.id
}

/** The turn of a request that never ran goes back too, or a mass cancel would send its account to the end of the queue. */
const refund = sql`
  update provider.accounts a
  set available = a.available + case when e.environment = 'live' then e.cost else 0 end,
    last_turn = a.last_turn - case when e.was = 'IN_QUEUE' and e.environment = 'live' then 1 else 0 end,
    last_sandbox_turn = a.last_sandbox_turn - case when e.was = 'IN_QUEUE' and e.environment = 'sandbox' then 1 else 0 end
  from ended e where a.id = e.account_id`
