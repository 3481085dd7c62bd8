import { columnsOf, list } from '../../runtime/postgres/columns.ts'
import { sql } from '../../runtime/postgres/drizzle.ts'
import { answered } from '../../runtime/postgres/errors.ts'
import type { Database } from '../../runtime/postgres/postgres.ts'
import type { RowOf } from '../../runtime/postgres/rows.ts'
import { iso } from '../accounts/keys.ts'
import * as schema from '../domain/schema.ts'

const accounts = columnsOf(schema.accounts)
const deliveries = columnsOf(schema.deliveries)
const d = columnsOf(schema.deliveries, 'd')
const deliveryAttempts = columnsOf(schema.deliveryAttempts)

/** One delivery of a webhook with what became of it. */
export type DeliveryListing = RowOf<
  typeof schema.deliveries,
  'id' | 'request_id' | 'url' | 'state' | 'attempts' | 'max_attempts' | 'due_at' | 'created_at' | 'settled_at'
> & { account: string }

export type AttemptListing = RowOf<
  typeof schema.deliveryAttempts,
  'number' | 'started_at' | 'duration_ms' | 'ok' | 'http_status' | 'detail'
>

const listed = sql`${d.id}, ${d.request_id}, ${d.account_id} as account, ${list(d, 'url', 'state', 'attempts', 'max_attempts', 'due_at', 'created_at', 'settled_at')}`

/** Newest first, of one account or of all; the latest of each account are merged, as the index has them (nulls last, or it is not used). */
export async function listDeliveries(db: Database, { account, limit }: { account?: string; limit: number }): Promise<DeliveryListing[]> {
  const rows = answered(
    await db.execute<DeliveryListing>(sql`
    select ${listed}
    from (select ${accounts.id} from provider.accounts where ${account ?? null}::text is null or ${accounts.id} = ${account ?? null}) a
    cross join lateral (
      select * from provider.deliveries where ${deliveries.account_id} = a.id order by ${deliveries.created_at} desc nulls last, ${deliveries.id} desc nulls last limit ${limit}::int
    ) d
    order by ${d.created_at} desc, ${d.id} desc limit ${limit}::int`),
    'listing deliveries',
  )
  return rows.map(withTimes)
}

export async function listDeliveriesOf(db: Database, requestId: string): Promise<DeliveryListing[]> {
  const rows = answered(
    await db.execute<DeliveryListing>(sql`
    select ${listed} from provider.deliveries d where ${d.request_id} = ${requestId} order by ${d.created_at} desc`),
    'listing the deliveries of a request',
  )
  return rows.map(withTimes)
}

function withTimes(row: DeliveryListing): DeliveryListing {
  return { ...row, due_at: iso(row.due_at), created_at: iso(row.created_at), settled_at: row.settled_at && iso(row.settled_at) }
}

export type DeliveryDetail = { delivery: DeliveryListing; body: string; attempts: AttemptListing[] }

export async function showDelivery(db: Database, id: string): Promise<DeliveryDetail | undefined> {
  const [row] = answered(
    await db.execute<DeliveryListing & RowOf<typeof schema.deliveries, 'body'>>(sql`
    select ${listed}, ${d.body} from provider.deliveries d where ${d.id} = ${id}`),
    'reading a delivery',
  )
  if (row === undefined) return undefined
  const attempts = answered(
    await db.execute<AttemptListing>(sql`
    select ${list(deliveryAttempts, 'number', 'started_at', 'duration_ms', 'ok', 'http_status', 'detail')}
    from provider.delivery_attempts where ${deliveryAttempts.delivery_id} = ${id} order by ${deliveryAttempts.number}`),
    'reading the attempts of a delivery',
  )
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
  const rows = answered(
    await db.execute(sql`
    update provider.deliveries
    set ${deliveries.state} = 'pending', ${deliveries.max_attempts} = greatest(${deliveries.max_attempts}, ${deliveries.attempts} + 1),
      ${deliveries.due_at} = ${now.toISOString()}, ${deliveries.settled_at} = null, ${deliveries.lease_token} = null
    where ${deliveries.id} = ${id} and (${deliveries.state} <> 'pending' or (${deliveries.lease_token} is null and ${deliveries.due_at} > ${now.toISOString()}))
    returning ${deliveries.id}`),
    'sending a delivery again',
  )
  return rows.length > 0
}
