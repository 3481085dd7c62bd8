import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import * as schema from '../domain/schema.ts'
import type { NewDelivery } from './notification.ts'
import type { ClaimedDelivery } from './outbox-claims.ts'

const deliveries = columnsOf(schema.deliveries)
const deliveryAttempts = columnsOf(schema.deliveryAttempts)

/** Spec, Delivery rules 2. */
export const maxAttempts = 6

/**
 * The piece of SQL that puts a notification into the outbox, for the statement
 * that ends its request. `request` has id, account_id, api_key_id and faults.
 */
export function insertDelivery(delivery: NewDelivery | undefined, request: SQL, now: string): SQL {
  if (delivery === undefined) return sql`select 1`
  const { id, url, host, body, dropped, dueAt } = delivery
  return sql`
    insert into provider.deliveries
      (${list(deliveries, 'id', 'request_id', 'account_id', 'api_key_id', 'url', 'host', 'body', 'state', 'max_attempts', 'due_at', 'faults', 'created_at')})
    select ${id}::uuid, r.id, r.account_id, r.api_key_id, ${url}, ${host}, ${body}, ${dropped ? 'dropped' : 'pending'},
      ${maxAttempts}::int, ${dueAt.toISOString()}::timestamptz, r.faults, ${now}::timestamptz
    from ${request} r`
}

export type Attempt = {
  startedAt: Date
  durationMs: number
  ok: boolean
  httpStatus: number | undefined
  detail: string
}

/**
 * Writes down an attempt and what follows from it; `retryAt` is undefined when
 * there is no further one. Nothing happens when the delivery was taken over.
 */
export async function settleAttempt(
  db: Database,
  claimed: ClaimedDelivery,
  attempt: Attempt,
  { retryAt, now }: { retryAt: Date | undefined; now: Date },
): Promise<boolean> {
  const state = attempt.ok ? 'delivered' : retryAt ? 'pending' : 'failed'
  const rows = await db.execute<{ settled: boolean }>(sql`
    with settled as (
      update provider.deliveries
      set ${deliveries.state} = ${state}, ${deliveries.lease_token} = null, ${deliveries.due_at} = coalesce(${retryAt?.toISOString() ?? null}::timestamptz, ${deliveries.due_at}),
        ${deliveries.settled_at} = case when ${state} = 'pending' then null else ${now.toISOString()}::timestamptz end
      where ${deliveries.id} = ${claimed.id} and ${deliveries.lease_token} = ${claimed.token}::uuid and ${deliveries.attempts} = ${claimed.attempt}::int
      returning ${deliveries.id}
    ), written as (
      insert into provider.delivery_attempts (${list(deliveryAttempts, 'delivery_id', 'number', 'started_at', 'duration_ms', 'ok', 'http_status', 'detail')})
      select id, ${claimed.attempt}::int, ${attempt.startedAt.toISOString()}::timestamptz, ${Math.round(attempt.durationMs)}::int,
        ${attempt.ok}::boolean, ${attempt.httpStatus ?? null}::int, ${attempt.detail}
      from settled
      on conflict do nothing
    )
    select exists (select from settled) as settled`)
  return one(rows, `settling an attempt of the delivery ${claimed.id}`).settled
}

const abandonedBatch = 1000

/** Gives up what processes left behind in their last attempt, so many at a time. */
export async function failAbandoned(db: Database, now: Date): Promise<void> {
  await db.execute(sql`
    update provider.deliveries set ${deliveries.state} = 'failed', ${deliveries.lease_token} = null, ${deliveries.settled_at} = ${now.toISOString()}
    where ${deliveries.id} = any (array(
      select ${deliveries.id} from provider.deliveries
      where ${deliveries.state} = 'pending' and ${deliveries.attempts} >= ${deliveries.max_attempts} and ${deliveries.due_at} <= ${now.toISOString()}
      order by ${deliveries.due_at} limit ${abandonedBatch}::int for update skip locked
    ))`)
}
