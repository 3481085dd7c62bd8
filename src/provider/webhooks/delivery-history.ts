import { sql } from 'drizzle-orm'
import { answered } from '../../runtime/postgres/errors.ts'
import type { Database } from '../../runtime/postgres/postgres.ts'
import { iso } from '../accounts/keys.ts'

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

const listed = sql`d.id, d.request_id, d.account_id as account, d.url, d.state, d.attempts, d.max_attempts, d.due_at, d.created_at, d.settled_at`

/** Newest first, of one account or of all; the latest of each account are merged, as the index has them. */
export async function listDeliveries(db: Database, { account, limit }: { account?: string; limit: number }): Promise<DeliveryListing[]> {
  const rows = answered(await db.execute<DeliveryListing>(sql`
    select ${listed}
    from (select id from provider.accounts where ${account ?? null}::text is null or id = ${account ?? null}) a
    cross join lateral (
      select * from provider.deliveries where account_id = a.id order by created_at desc, id desc limit ${limit}::int
    ) d
    order by d.created_at desc, d.id desc limit ${limit}::int`), 'listing deliveries')
  return rows.map(withTimes)
}

export async function listDeliveriesOf(db: Database, requestId: string): Promise<DeliveryListing[]> {
  const rows = answered(await db.execute<DeliveryListing>(sql`
    select ${listed} from provider.deliveries d where d.request_id = ${requestId} order by d.created_at desc`), 'listing the deliveries of a request')
  return rows.map(withTimes)
}

function withTimes(row: DeliveryListing): DeliveryListing {
  return { ...row, due_at: iso(row.due_at), created_at: iso(row.created_at), settled_at: row.settled_at && iso(row.settled_at) }
}

export type DeliveryDetail = { delivery: DeliveryListing; body: string; attempts: AttemptListing[] }

export async function showDelivery(db: Database, id: string): Promise<DeliveryDetail | undefined> {
  const [row] = answered(await db.execute<DeliveryListing & { body: string }>(sql`
    select ${listed}, d.body from provider.deliveries d where d.id = ${id}`), 'reading a delivery')
  if (row === undefined) return undefined
  const attempts = answered(await db.execute<AttemptListing>(sql`
    select number, started_at, duration_ms, ok, http_status, detail
    from provider.delivery_attempts where delivery_id = ${id} order by number`), 'reading the attempts of a delivery')
  const { body, ...delivery } = row
  return {
    delivery: withTimes(delivery),
    body,
    attempts: attempts.map((attempt) => ({ ...attempt, started_at: iso(attempt.started_at) })),
  }
}

/**
 * One more attempt in the next tick, with the same id and bytes, whatever became
 * of the others. False when it is unknown, or still has attempts of its own coming.
 */
export async function resendDelivery(db: Database, id: string, now: Date): Promise<boolean> {
  const rows = answered(await db.execute(sql`
    update provider.deliveries
    set state = 'pending', max_attempts = greatest(max_attempts, attempts + 1), due_at = ${now.toISOString()}, settled_at = null, lease_token = null
    where id = ${id} and (state <> 'pending' or (lease_token is null and due_at > ${now.toISOString()}))
    returning id`), 'sending a delivery again')
  return rows.length > 0
}
