import { type Columns, columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import * as schema from '../domain/schema.ts'

const deliveries = columnsOf(schema.deliveries)
const d = columnsOf(schema.deliveries, 'd')
const deliveryAttempts = columnsOf(schema.deliveryAttempts)
const k = columnsOf(schema.apiKeys, 'k')

/** The state of a delivery, as pages show it. */
export const standings = ['waiting', 'sending', 'retrying', 'delivered', 'given up', 'dropped'] as const
export type Standing = (typeof standings)[number]

/** Condition: the last attempt of a row has not ended. */
function isSending(row: Columns<'id' | 'attempts'>): SQL {
  return sql`(${row.attempts} > 0 and not exists (
    select from provider.delivery_attempts last where last.delivery_id = ${row.id} and last.number = ${row.attempts}))`
}

/** SQL that derives a value of `standings` from a row. */
export function standingOf(row: Columns<'id' | 'attempts' | 'state'>): SQL {
  return sql`case ${row.state}
    when 'pending'
      then case when ${isSending(row)} then 'sending' when ${row.attempts} > 0 then 'retrying' else 'waiting' end
    when 'failed' then 'given up' else ${row.state} end`
}

export type AttemptListing = RowOf<
  typeof schema.deliveryAttempts,
  'number' | 'started_at' | 'duration_ms' | 'ok' | 'http_status' | 'detail'
>

/** A delivery of a webhook with its attempts. */
export type DeliveryListing = RowOf<
  typeof schema.deliveries,
  'id' | 'request_id' | 'url' | 'host' | 'state' | 'attempts' | 'max_attempts' | 'due_at' | 'created_at'
> & {
  account: string
  standing: Standing
  /** The latest ended attempts in order, with the beginning of each answer. */
  ended: AttemptListing[]
}

const attempt = list(deliveryAttempts, 'number', 'started_at', 'duration_ms', 'ok', 'http_status')

export const listedColumns = sql`${d.id}, ${d.request_id}, ${d.account_id} as account,
  ${list(d, 'url', 'host', 'state', 'attempts', 'max_attempts', 'due_at', 'created_at')}, ${standingOf(d)} as standing,
  (select coalesce(jsonb_agg(a order by a.number), '[]') from (
    select ${attempt}, left(${deliveryAttempts.detail}, 120) as detail
    from provider.delivery_attempts where ${deliveryAttempts.delivery_id} = ${d.id}
    order by ${deliveryAttempts.number} desc limit 12
  ) a) as ended`

export type DeliveryDetail = NonNullable<Awaited<ReturnType<typeof showDelivery>>>

/** A delivery with its body and its key, and at most its latest 100 attempts, in order. */
export async function showDelivery(db: Database, id: string) {
  const [row] = await db.execute<
    DeliveryListing & RowOf<typeof schema.deliveries, 'body' | 'api_key_id'> & { key_name: string | null }
  >(sql`
    select ${listedColumns}, ${list(d, 'body', 'api_key_id')}, ${k.name} as key_name
    from provider.deliveries d left join provider.api_keys k on ${k.id} = ${d.api_key_id} where ${d.id} = ${id}`)
  if (row === undefined) return undefined
  const attempts = await db.execute<AttemptListing>(sql`
    select ${attempt}, ${deliveryAttempts.detail}
    from provider.delivery_attempts where ${deliveryAttempts.delivery_id} = ${id}
    order by ${deliveryAttempts.number} desc limit 100`)
  const { body, api_key_id, key_name, ...delivery } = row
  return { delivery, key: { id: api_key_id, name: key_name }, body, attempts: attempts.toReversed() }
}

/**
 * Makes one more attempt due, with the same id and bytes. Returns false if the delivery is unknown, in progress or
 * already due.
 */
export async function resendDelivery(db: Database, id: string, now: SQL): Promise<boolean> {
  const rows = await db.execute(sql`
    update provider.deliveries d
    set ${deliveries.state} = 'pending', ${deliveries.max_attempts} = greatest(${d.max_attempts}, ${d.attempts} + 1),
      ${deliveries.due_at} = ${now}, ${deliveries.settled_at} = null
    where ${d.id} = ${id} and (${d.state} <> 'pending' or (not ${isSending(d)} and ${d.due_at} > ${now}))
    returning ${d.id}`)
  return rows.length > 0
}
