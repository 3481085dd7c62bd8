import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, type SQL, type StringChunk } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import type { Output, RequestStatus } from '../../wire/schemas.ts'
import { refundEntries, settleEntries } from '../accounts/ledger.ts'
import type { Input } from '../catalog/input.ts'
import type { EngineChoice, RemoteJob } from '../domain/engine-choice.ts'
import type { Faults } from '../domain/faults.ts'
import type { Environment } from '../domain/schema.ts'
import * as schema from '../domain/schema.ts'
import { type Ending, type NewDelivery, notificationOf } from '../webhooks/notification.ts'
import { insertDelivery } from '../webhooks/outbox.ts'

const accounts = columnsOf(schema.accounts)
const a = columnsOf(schema.accounts, 'a')
const requests = columnsOf(schema.requests)
const r = columnsOf(schema.requests, 'r')

/** A request that this process runs until its lease ends. */
export type ClaimedRequest = {
  id: string
  token: string
  keyId: string
  environment: Environment
  model: string
  input: Input
  /** Null: an older release accepted it. */
  engine: EngineChoice | null
  remoteJob: RemoteJob | null
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
export async function claimRequests(
  db: Database,
  { environment, token, limit, leaseUntil, now }: Claim,
): Promise<ClaimedRequest[]> {
  const at = now.toISOString()
  const rows = await db.execute<
    RowOf<
      typeof schema.requests,
      | 'id'
      | 'api_key_id'
      | 'environment'
      | 'model'
      | 'input'
      | 'engine'
      | 'remote_job'
      | 'cost'
      | 'webhook_url'
      | 'faults'
      | 'attempts'
    > & { input: Input }
  >(sql`
    with orphans as (
      select ${requests.id} from provider.requests
      where ${requests.status} = 'IN_PROGRESS' and ${requests.environment} = ${environment} and ${requests.lease_until} <= ${at}
      order by ${requests.lease_until} limit ${limit}::int for update skip locked
    ), heads as (
      select ${requests.id} from provider.requests
      where ${requests.status} = 'IN_QUEUE' and ${requests.environment} = ${environment}
      order by ${requests.turn}, ${requests.seq} limit greatest(${limit}::int - (select count(*) from orphans), 0) for update skip locked
    )
    update provider.requests r
    set ${requests.status} = 'IN_PROGRESS', ${requests.attempts} = ${r.attempts} + 1, ${requests.lease_token} = ${token}::uuid,
      ${requests.lease_until} = ${leaseUntil.toISOString()}, ${requests.started_at} = coalesce(${r.started_at}, ${at}::timestamptz)
    from (select id from orphans union all select id from heads) next
    where ${r.id} = next.id
    returning ${list(r, 'id', 'api_key_id', 'environment', 'model', 'input', 'engine', 'remote_job', 'cost', 'webhook_url', 'faults', 'attempts')}`)
  return rows.map(
    ({ api_key_id: keyId, webhook_url: webhookUrl, remote_job: remoteJob, attempts: attempt, ...row }) => ({
      ...row,
      token,
      keyId,
      webhookUrl,
      remoteJob,
      attempt,
    }),
  )
}

const maxLogLines = 500

/** Progress of a running request (spec, progress and logs). False when it is no longer ours: canceled, or taken over. */
export async function recordProgress(
  db: Database,
  { id, token }: ClaimedRequest,
  { progress, logLines, leaseUntil }: { progress: number; logLines: readonly string[]; leaseUntil: Date },
): Promise<boolean> {
  const rows = await db.execute(sql`
    update provider.requests
    set ${requests.progress} = greatest(${requests.progress}, ${progress}::int), ${requests.lease_until} = ${leaseUntil.toISOString()},
      ${requests.logs} = (${requests.logs} || ${sql.param([...logLines])}::text[])[:${maxLogLines}::int]
    where ${requests.id} = ${id} and ${requests.status} = 'IN_PROGRESS' and ${requests.lease_token} = ${token}::uuid
    returning ${requests.id}`)
  return rows.length > 0
}

/** Keeps the job of another server for the worker that may take the request over. False when it is no longer ours. */
export async function recordRemoteJob(
  db: Database,
  { id, token }: ClaimedRequest,
  remoteJob: RemoteJob,
): Promise<boolean> {
  const rows = await db.execute(sql`
    update provider.requests set ${requests.remote_job} = ${JSON.stringify(remoteJob)}::jsonb
    where ${requests.id} = ${id} and ${requests.status} = 'IN_PROGRESS' and ${requests.lease_token} = ${token}::uuid
    returning ${requests.id}`)
  return rows.length > 0
}

export async function isCanceled(db: Database, id: string): Promise<boolean> {
  const rows = await db.execute(
    sql`select from provider.requests where ${requests.id} = ${id} and ${requests.status} = 'CANCELED'`,
  )
  return rows.length > 0
}

/** Lets go of a request that is not finished: another attempt may start at `retryAt`. */
export async function releaseRequest(
  db: Database,
  { id, token }: ClaimedRequest,
  retryAt: Date,
  countAttempt: boolean,
): Promise<void> {
  await db.execute(sql`
    update provider.requests
    set ${requests.lease_token} = null, ${requests.lease_until} = ${retryAt.toISOString()}, ${requests.attempts} = ${requests.attempts} - ${countAttempt ? 0 : 1}::int
    where ${requests.id} = ${id} and ${requests.status} = 'IN_PROGRESS' and ${requests.lease_token} = ${token}::uuid`)
}

/** Ends a running request, once: settles or refunds, and puts its notification into the outbox. */
export async function finishRequest(
  db: Database,
  claimed: ClaimedRequest,
  ending: Ending,
  { now, random, isTold = true }: { now: Date; random: () => number; isTold?: boolean },
): Promise<boolean> {
  const delivery = isTold ? notificationOf({ ...claimed, requestId: claimed.id }, ending, now, random) : undefined
  const mine = sql`${requests.status} = 'IN_PROGRESS' and ${requests.lease_token} = ${claimed.token}::uuid`
  return (await end(db, { id: claimed.id, guard: mine, ending, delivery, now })) !== undefined
}

/**
 * Cancels a request that has not ended (spec, CANCELED), with its refund.
 * `whileQueuedOnly` is what the API may do; console and command line may do more.
 */
export async function cancelRequest(db: Database, id: string, whileQueuedOnly: boolean, now: Date): Promise<boolean> {
  const guard = whileQueuedOnly
    ? sql`${requests.status} = 'IN_QUEUE'`
    : sql`${requests.status} in ('IN_QUEUE', 'IN_PROGRESS')`
  return (await end(db, { id, guard, ending: { kind: 'canceled' }, delivery: undefined, now })) !== undefined
}

type End = { id: string; guard: SQL; ending: Ending; delivery: NewDelivery | undefined; now: Date }

const statusOf = { completed: 'COMPLETED', failed: 'FAILED', canceled: 'CANCELED' } as const satisfies Record<
  Ending['kind'],
  RequestStatus
>

/** The only way into a terminal state for a request that was queued. One statement, guarded by the state. */
async function end(db: Database, { id, guard, ending, delivery, now }: End): Promise<string | undefined> {
  const at = now.toISOString()
  const output: Output | null = ending.kind === 'completed' ? ending.output : null
  const error = ending.kind === 'failed' ? ending.error : null
  const moved = sql`(select account_id, id as request_id, cost as amount, ${at}::timestamptz as at from ended where environment = 'live')`
  const [row] = await db.execute<RowOf<typeof schema.requests, 'id'>>(sql`
    with before as (
      select ${requests.id}, ${requests.status} from provider.requests where ${requests.id} = ${id} and ${guard} for update
    ), ended as (
      update provider.requests r
      set ${requests.status} = ${statusOf[ending.kind]}, ${requests.completed_at} = ${at}, ${requests.lease_token} = null, ${requests.lease_until} = null,
        ${requests.output} = ${output === null ? null : JSON.stringify(output)}::jsonb,
        ${requests.progress} = case when ${ending.kind} = 'completed' then 100 else ${r.progress} end,
        ${requests.error_code} = ${error?.code ?? null}, ${requests.error_message} = ${error?.message ?? null}
      from before where ${r.id} = before.id
      returning ${list(r, 'id', 'account_id', 'api_key_id', 'environment', 'cost', 'faults', 'turn')}, before.status as was
    ), entries as (${ending.kind === 'completed' ? settleEntries(moved) : refundEntries(moved)}
    ), refunded as (${ending.kind === 'completed' ? sql`select 1` : refund}
    ), notified as (${insertDelivery(delivery, sql`ended`, at)}
    )
    select id from ended`)
  return row?.id
}

/**
 * The turn of a request that never ran goes back too, or a mass cancel would send its account to the end of the queue.
 * It goes back only where it is the last: otherwise the next submit would get a turn that another request has already.
 */
const refund = sql`
  update provider.accounts a
  set ${accounts.available} = ${a.available} + case when e.environment = 'live' then e.cost else 0 end,
    ${accounts.last_turn} = ${turnBefore(a.last_turn, 'live')}, ${accounts.last_sandbox_turn} = ${turnBefore(a.last_sandbox_turn, 'sandbox')}
  from ended e where ${a.id} = e.account_id`

/** The last turn of those that still wait. Where none does, the next submit takes the turn that is served now. */
function turnBefore(last: SQL | StringChunk, environment: Environment): SQL {
  return sql`case when e.was = 'IN_QUEUE' and e.environment = ${environment} and e.turn = ${last} then coalesce((
      select max(${r.turn}) from provider.requests r
      where ${r.account_id} = e.account_id and ${r.status} = 'IN_QUEUE' and ${r.environment} = ${environment} and ${r.id} <> e.id), 0)
    else ${last} end`
}
