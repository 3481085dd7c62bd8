import { sql } from 'drizzle-orm'
import type { Database } from '../runtime/postgres.ts'
import { iso } from './keys.ts'

/** One delivery of a webhook with what became of it. */
export type DeliveryListing = {
  id: string
  request_id: string
  account: string
  url: string
  state: 'pending' | 'delivered' | 'failed' | 'dropped'
  attempts: number
  max_attempts: number
  due_at: string
  created_at: string
  settled_at: string | null
}

export type AttemptListing = {
  number: number
  started_at: string
  duration_ms: number
  ok: boolean
  http_status: number | null
  detail: string
}

export type DeliveryFilter = { account?: string | undefined; requestId?: string | undefined; limit: number }

/** Newest first. */
export async function listDeliveries(db: Database, { account, requestId, limit }: DeliveryFilter): Promise<DeliveryListing[]> {
  const rows = await db.execute<DeliveryListing>(sql`
    select id, request_id, account_id as account, url, state, attempts, max_attempts, due_at, created_at, settled_at
    from provider.deliveries
    where (${account ?? null}::text is null or account_id = ${account ?? null})
      and (${requestId ?? null}::uuid is null or request_id = ${requestId ?? null}::uuid)
    order by created_at desc, id desc limit ${limit}::int`)
  return rows.map((row) => ({
    ...row,
    due_at: iso(row.due_at),
    created_at: iso(row.created_at),
    settled_at: row.settled_at && iso(row.settled_at),
  }))
}

export type DeliveryDetail = { delivery: DeliveryListing; body: string; attempts: AttemptListing[] }

export async function showDelivery(db: Database, id: string): Promise<DeliveryDetail | undefined> {
  const [row] = await db.execute<DeliveryListing & { body: string }>(sql`
    select id, request_id, account_id as account, url, state, attempts, max_attempts, due_at, created_at, settled_at, body
    from provider.deliveries where id = ${id}`)
  if (row === undefined) return undefined
  const attempts = await db.execute<AttemptListing>(sql`
    select number, started_at, duration_ms, ok, http_status, detail
    from provider.delivery_attempts where delivery_id = ${id} order by number`)
  const { body, ...delivery } = row
  return {
    delivery: {
      ...delivery,
      due_at: iso(delivery.due_at),
      created_at: iso(delivery.created_at),
      settled_at: delivery.settled_at && iso(delivery.settled_at),
    },
    body,
    attempts: attempts.map((attempt) => ({ ...attempt, started_at: iso(attempt.started_at) })),
  }
}

/**
 * One more attempt in the next tick, with the same id and bytes, whatever became
 * of the others. False when it is unknown, or still has attempts of its own coming.
 */
export async function resendDelivery(db: Database, id: string, now: Date): Promise<boolean> {
  const rows = await db.execute(sql`
    update provider.deliveries
    set state = 'pending', max_attempts = greatest(max_attempts, attempts + 1), due_at = ${now.toISOString()}, settled_at = null, lease_token = null
    where id = ${id} and (state <> 'pending' or (lease_token is null and due_at > ${now.toISOString()}))
    returning id`)
  return rows.length > 0
}
