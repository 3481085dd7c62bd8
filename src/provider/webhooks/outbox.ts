import type { PostOutcome } from '../../platform/outward/poster.ts'
import { statementRows } from '../../platform/postgres/at-most.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { later } from '../../platform/postgres/time.ts'
import { webhookAttempts } from '../../wire/backoff.ts'
import type { NewDelivery } from './notification.ts'
import { type ClaimedDelivery, lease } from './outbox-claims.ts'

/**
 * SQL that puts a notification into the outbox, as part of the statement that ends its request. `request` has id,
 * account_id, api_key_id and faults.
 */
export function insertDelivery(delivery: NewDelivery | undefined, request: SQL, now: SQL): SQL {
  if (delivery === undefined) return sql`select 1`
  const { id, url, host, body, dropped, lateSeconds } = delivery
  return sql`
    insert into provider.deliveries (id, request_id, account_id, api_key_id, url, host, body, state,
      max_attempts, due_at, faults, created_at)
    select ${id}::uuid, r.id, r.account_id, r.api_key_id, ${url}, ${host}, ${body}, ${dropped ? 'dropped' : 'pending'},
      ${webhookAttempts}::int, ${later(now, lateSeconds)}, r.faults, ${now}
    from ${request} r`
}

export type Attempt = PostOutcome & { durationMs: number }

/**
 * Records an attempt and its consequence. Without `retryAfterSeconds` there is no further attempt. Returns false
 * without writing if another process has taken the delivery over.
 */
export async function recordAttempt(
  db: Database,
  claimed: ClaimedDelivery,
  attempt: Attempt,
  { retryAfterSeconds, now }: { retryAfterSeconds: number | undefined; now: SQL },
): Promise<boolean> {
  const { ok, durationMs, httpStatus, detail } = attempt
  const state = ok ? 'delivered' : retryAfterSeconds === undefined ? 'failed' : 'pending'
  const rows = await db.execute<{ recorded: boolean }>(sql`
    with mine as (
      update provider.deliveries d
      set state = ${state}, due_at = ${later(now, retryAfterSeconds ?? 0)},
        settled_at = case when ${state} <> 'pending' then ${now} end
      where d.state = 'pending' and ${lease.isHeld({ id: claimed.id, claims: claimed.attempts })}
      returning d.id
    ), written as (
      insert into provider.delivery_attempts
        (delivery_id, number, started_at, duration_ms, ok, http_status, detail)
      select id, ${claimed.attempts}::int, ${later(now, -durationMs / 1000)}, ${Math.round(durationMs)}::int,
        ${ok}::boolean, ${httpStatus ?? null}::int, ${detail}
      from mine on conflict do nothing
    )
    select exists (select from mine) as recorded`)
  return one(rows, `recording an attempt of the delivery ${claimed.id}`).recorded
}

/** Gives up deliveries whose process died during their last attempt. */
export async function failAbandoned(db: Database, now: SQL): Promise<void> {
  await db.execute(sql`
    update provider.deliveries set state = 'failed', settled_at = ${now}
    where id = any (array(
      select d.id from provider.deliveries d
      where d.state = 'pending' and d.attempts >= d.max_attempts and ${lease.isDue(now)}
      order by d.due_at limit ${statementRows} for update skip locked
    ))`)
}
