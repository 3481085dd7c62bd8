import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import type { deliveries, deliveryAttempts } from '../domain/schema.ts'

/** The state of a delivery, as pages show it. */
export const standings = ['waiting', 'sending', 'retrying', 'delivered', 'given up', 'dropped'] as const
export type Standing = (typeof standings)[number]

/** Condition: the last attempt of a delivery `d` has not ended. */
const isSending = sql`(d.attempts > 0 and not exists (
  select from provider.delivery_attempts last where last.delivery_id = d.id and last.number = d.attempts))`

/** SQL that derives a value of `standings` from a delivery `d`. */
export const standing = sql`case d.state
  when 'pending' then case when ${isSending} then 'sending' when d.attempts > 0 then 'retrying' else 'waiting' end
  when 'failed' then 'given up' else d.state end`

export type AttemptListing = RowOf<
  typeof deliveryAttempts,
  'number' | 'started_at' | 'duration_ms' | 'ok' | 'http_status' | 'detail'
>

/** A delivery of a webhook with its attempts. */
export type DeliveryListing = RowOf<
  typeof deliveries,
  'id' | 'request_id' | 'url' | 'host' | 'state' | 'attempts' | 'max_attempts' | 'due_at' | 'created_at'
> & {
  account: string
  standing: Standing
  /** The latest ended attempts in order, with the beginning of each answer. */
  ended: AttemptListing[]
}

export const listedColumns = sql`d.id, d.request_id, d.account_id as account, d.url, d.host, d.state, d.attempts,
  d.max_attempts, d.due_at, d.created_at, ${standing} as standing, (
    select coalesce(jsonb_agg(a order by a.number), '[]') from (
      select number, started_at, duration_ms, ok, http_status, left(detail, 120) as detail
      from provider.delivery_attempts where delivery_id = d.id order by number desc limit 12
    ) a
  ) as ended`

export type DeliveryDetail = NonNullable<Awaited<ReturnType<typeof showDelivery>>>

/** A delivery with its body and its key, and at most its latest 100 attempts, in order. */
export async function showDelivery(db: Database, id: string) {
  const [row] = await db.execute<
    DeliveryListing & RowOf<typeof deliveries, 'body' | 'api_key_id'> & { key_name: string | null }
  >(sql`
    select ${listedColumns}, d.body, d.api_key_id, k.name as key_name
    from provider.deliveries d left join provider.api_keys k on k.id = d.api_key_id where d.id = ${id}`)
  if (row === undefined) return undefined
  const attempts = await db.execute<AttemptListing>(sql`
    select number, started_at, duration_ms, ok, http_status, detail
    from provider.delivery_attempts where delivery_id = ${id} order by number desc limit 100`)
  return { delivery: row, attempts: attempts.toReversed() }
}

/**
 * Makes one more attempt due, with the same id and bytes. Returns false if the delivery is unknown, in progress or
 * already due.
 */
export async function resendDelivery(db: Database, id: string, now: SQL): Promise<boolean> {
  const rows = await db.execute(sql`
    update provider.deliveries d
    set state = 'pending', max_attempts = greatest(d.max_attempts, d.attempts + 1), due_at = ${now}, settled_at = null
    where d.id = ${id} and (d.state <> 'pending' or (not ${isSending} and d.due_at > ${now}))
    returning d.id`)
  return rows.length > 0
}
