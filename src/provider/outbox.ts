import { sql, type SQL } from 'drizzle-orm'
import type { Database } from '../runtime/postgres.ts'
import type { Faults } from './faults.ts'
import type { NewDelivery } from './notification.ts'

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
      (id, request_id, account_id, api_key_id, url, host, body, state, max_attempts, due_at, faults, created_at)
    select ${id}::uuid, r.id, r.account_id, r.api_key_id, ${url}, ${host}, ${body}, ${dropped ? 'dropped' : 'pending'},
      ${maxAttempts}::int, ${dueAt.toISOString()}::timestamptz, r.faults, ${now}::timestamptz
    from ${request} r`
}

/** A delivery that this process may attempt until its lease ends. */
export type ClaimedDelivery = {
  id: string
  token: string
  keyId: string
  url: string
  host: string
  body: string
  /** The number of this attempt, from 1. */
  attempt: number
  maxAttempts: number
  faults: Faults | null
}

export type ClaimRequest = {
  token: string
  /** What was due by then is claimed. */
  dueBy: Date
  now: Date
  /** From when on the attempt may be taken over by another process. */
  leaseUntil: Date
  limit: number
  perHost: number
  /** Attempts that run here already, by host. */
  inFlight: ReadonlyMap<string, number>
}

/**
 * Claims deliveries that are due, host by host, so that a host with thousands of
 * them takes no more than its share. An attempt counts from its claim on: a
 * process that dies in the middle of one never makes it seven.
 */
export async function claimDue(db: Database, wanted: ClaimRequest): Promise<ClaimedDelivery[]> {
  const inFlight = JSON.stringify(Object.fromEntries(wanted.inFlight))
  const rows = await db.execute<{
    id: string
    api_key_id: string
    url: string
    host: string
    body: string
    attempts: number
    max_attempts: number
    faults: Faults | null
  }>(sql`
    with recursive hosts as (
      (select host from provider.deliveries where state = 'pending' order by host limit 1)
      union all
      select (select d.host from provider.deliveries d where d.state = 'pending' and d.host > hosts.host order by d.host limit 1)
      from hosts where hosts.host is not null
    ), due as (
      select next.id from hosts cross join lateral (
        select d.id, d.due_at from provider.deliveries d
        where d.state = 'pending' and d.host = hosts.host and d.due_at <= ${wanted.dueBy.toISOString()}
          and d.attempts < d.max_attempts
        order by d.due_at
        limit greatest(${wanted.perHost}::int - coalesce((${inFlight}::jsonb ->> hosts.host)::int, 0), 0)
        for update skip locked
      ) next
      where hosts.host is not null
      order by next.due_at limit ${wanted.limit}::int
    )
    update provider.deliveries d
    set attempts = d.attempts + 1, lease_token = ${wanted.token}::uuid, due_at = ${wanted.leaseUntil.toISOString()}
    from due where d.id = due.id
    returning d.id, d.api_key_id, d.url, d.host, d.body, d.attempts, d.max_attempts, d.faults`)
  return rows.map((row) => ({
    id: row.id,
    token: wanted.token,
    keyId: row.api_key_id,
    url: row.url,
    host: row.host,
    body: row.body,
    attempt: row.attempts,
    maxAttempts: row.max_attempts,
    faults: row.faults,
  }))
}

export type Attempt = { startedAt: Date; durationMs: number; ok: boolean; httpStatus: number | undefined; detail: string }

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
  const rows = await db.execute(sql`
    with settled as (
      update provider.deliveries
      set state = ${state}, lease_token = null, due_at = coalesce(${retryAt?.toISOString() ?? null}::timestamptz, due_at),
        settled_at = case when ${state} = 'pending' then null else ${now.toISOString()}::timestamptz end
      where id = ${claimed.id} and lease_token = ${claimed.token}::uuid and attempts = ${claimed.attempt}::int
      returning id
    )
    insert into provider.delivery_attempts (delivery_id, number, started_at, duration_ms, ok, http_status, detail)
    select id, ${claimed.attempt}::int, ${attempt.startedAt.toISOString()}::timestamptz, ${Math.round(attempt.durationMs)}::int,
      ${attempt.ok}::boolean, ${attempt.httpStatus ?? null}::int, ${attempt.detail}
    from settled
    on conflict do nothing
    returning delivery_id`)
  return rows.length > 0
}

/** Gives up what a process left behind in its last attempt. Answers how many. */
export async function failAbandoned(db: Database, now: Date): Promise<number> {
  const rows = await db.execute(sql`
    update provider.deliveries set state = 'failed', lease_token = null, settled_at = ${now.toISOString()}
    where state = 'pending' and attempts >= max_attempts and due_at <= ${now.toISOString()} returning id`)
  return rows.length
}
