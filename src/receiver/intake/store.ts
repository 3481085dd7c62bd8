import { isUtf8 } from 'node:buffer'
import { atMost } from '../../platform/postgres/at-most.ts'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { durable } from '../../platform/postgres/durable.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { executePrepared } from '../../platform/postgres/prepared.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { later, postgresTime } from '../../platform/postgres/time.ts'
import * as arriving from '../domain/arrivals-schema.ts'
import type { Delivery } from '../domain/delivery.ts'
import * as schema from '../domain/schema.ts'

const written = {
  deliveries: list(
    columnsOf(schema.deliveries),
    'id',
    'webhook_id',
    'request_id',
    'status',
    'key_name',
    'environment',
    'signed_at',
    'received_at',
    'headers',
    'body',
    'parked_reason',
  ),
  inbox: list(columnsOf(schema.inbox), 'delivery_id', 'due_at', 'claims'),
}
const deliveries = columnsOf(schema.deliveries)
const d = columnsOf(schema.deliveries, 'd')
const inbox = columnsOf(schema.inbox)
const quarantine = columnsOf(arriving.quarantine)

/** Whether a live key that signed a delivery too takes the place of the key that it is stored with (a row of `deliveries`). */
const yieldsToLive = sql`(${deliveries.environment} is distinct from 'live' and coalesce(${deliveries.parked_reason} = 'landing_failed', true))`

export type StoreOptions = {
  /** The time that replicas share (time.ts). */
  now?: SQL
  /** Deliveries that are stored with a claim of this process, which lasts so long. */
  claimed?: { ids: ReadonlySet<string>; leaseSeconds: number }
  /** Rows of the quarantine to delete with it. */
  quarantineIds?: readonly number[]
}

/**
 * The ids that were new, those that are due again because another key signed them too, and those that another
 * transaction was just storing, landing or deleting: whether the key takes over is open, so they are to be stored again.
 */
export type StoreAnswer = { isNew: Set<string>; requeued: Set<string>; contended: Set<string> }

/**
 * One statement: the deliveries, their place in the queue, and the promise that
 * the commit is on disk. It also deletes the rows of the quarantine that they come from.
 * Every row has to come back, new or known, so that a missing answer is never taken for "known already".
 */
export async function storeDeliveries(
  db: Database,
  rows: readonly Delivery[],
  { now = postgresTime(), claimed, quarantineIds = [] }: StoreOptions = {},
): Promise<StoreAnswer> {
  const released =
    quarantineIds.length === 0
      ? sql``
      : sql`, released as (
          delete from mediadock.quarantine where ${quarantine.id} = any(${sql.param([...quarantineIds])}::bigint[]) and not exists (select from contended))`
  const bodies = Buffer.concat(rows.map(({ body }) => body))
  const answers = await executePrepared<
    RowOf<typeof schema.deliveries, 'id'> & { is_new: boolean; is_requeued: boolean; is_contended: boolean }
  >(
    db,
    sql`
    with ${durable},
    bodies as materialized (select ${bytesOf(bodies)} as bytes),
    arrived as (
      select * from jsonb_to_recordset(${JSON.stringify(itemsOf(rows, claimed?.ids))}::jsonb) as a (
        id uuid, webhook_id text, request_id uuid, status text, key_name text, environment text, signed_at float8, received_at float8,
        headers jsonb, parked_reason text, is_claimed boolean, start int, length int)
      limit ${atMost(rows.length)}
    ),
    stored as (
      insert into mediadock.deliveries
        (${written.deliveries})
      select id, webhook_id, request_id, status, key_name, environment, to_timestamp(signed_at), to_timestamp(received_at), headers,
        substring(bodies.bytes from start for length), parked_reason
      from arrived, bodies, durable
      on conflict (id) do nothing
      returning id
    ),
    queued as (
      insert into mediadock.inbox (${written.inbox})
      -- Due now, even where the clock of this host is ahead.
      select id, case when is_claimed then ${later(now, claimed?.leaseSeconds ?? 0)}
          else least(to_timestamp(received_at), ${now}) end, is_claimed::int
      from stored join arrived using (id) where parked_reason is null
    ),
    ${takeOverKeys}
    ${released}
    -- What is known already is acknowledged as well, so this commit has to wait for the disk and a synchronous standby
    -- even where it wrote no row: one that crashed while it waited for its standby shows what the standby never got.
    select arrived.id, stored.id is not null as is_new, arrived.id in (select delivery_id from requeued) as is_requeued,
      arrived.id in (select id from contended) as is_contended,
      case when stored.id is null then pg_logical_emit_message(true, 'mediadock', '') end as waited_for
    from arrived left join stored using (id)`,
  )
  if (answers.length !== rows.length)
    throw new Error(`postgres answered for ${answers.length} of ${rows.length} deliveries`)
  const idsOf = (which: 'is_new' | 'is_requeued' | 'is_contended') =>
    new Set(answers.flatMap((answer) => (answer[which] ? [answer.id] : [])))
  return { isNew: idsOf('is_new'), requeued: idsOf('is_requeued'), contended: idsOf('is_contended') }
}

/**
 * `requeued`: duplicates that a key of another environment signed than the one that they are stored with. A stored
 * delivery that is parked for its key is due again with the new one. Any other is due again with a live key only,
 * whether it waits or has landed: a live key may speak for any request that the other could. The claim of a process
 * that holds it ends then.
 *
 * Accepting waits for no landing, so a row that is locked at this instant is left alone. Such a row, and one that this
 * statement's snapshot does not show, is `contended`: nobody may answer `duplicate` for it yet.
 * Reads `arrived` and `stored`.
 */
const takeOverKeys = sql`
    again as (select * from arrived where id not in (select id from stored)),
    again_live as (select id from again where environment = 'live'),
    waiting as (
      select ${inbox.delivery_id} from mediadock.inbox
      where ${inbox.delivery_id} = any(array(select id from again_live)) for update skip locked
    ),
    contested as (
      select ${deliveries.id} from mediadock.deliveries
      where ${deliveries.id} = any(array(select id from again))
        and (${deliveries.parked_reason} = 'key_mismatch' or (${yieldsToLive} and ${deliveries.id} in (select id from again_live)
          and (${deliveries.id} in (select delivery_id from waiting) or not exists (select from mediadock.inbox where ${inbox.delivery_id} = ${deliveries.id}))))
      for update skip locked
    ),
    taken_over as (
      update mediadock.deliveries d set key_name = again.key_name, environment = again.environment, parked_reason = null from again
      where ${d.id} = any(array[again.id]) and ${d.id} in (select id from contested) and ${d.environment} is distinct from again.environment
      returning ${d.id}
    ),
    requeued as (
      insert into mediadock.inbox (${list(inbox, 'delivery_id', 'due_at')}) select id, now() from taken_over
      on conflict (delivery_id) do update set due_at = excluded.due_at, claims = inbox.claims + 1
      returning ${inbox.delivery_id}
    ),
    contended as (
      select again.id from again left join lateral (
        select ${deliveries.environment}, ${deliveries.parked_reason} = 'key_mismatch' as is_parked, ${yieldsToLive} as yields
        from mediadock.deliveries where ${deliveries.id} = again.id limit 1) as known on true
      where again.id not in (select delivery_id from requeued)
        and (known is null or (known.environment is distinct from again.environment and (known.is_parked or (known.yields and again.environment = 'live'))))
    )`

/**
 * All bodies of a batch as one value that is cut up over there. As text
 * wherever they can be one: the driver writes a bytea as hex, twice as long.
 */
export function bytesOf(bodies: Buffer): SQL {
  const storableAsText = isUtf8(bodies) && !bodies.includes(0)
  return storableAsText ? sql`convert_to(${bodies.toString()}::text, 'UTF8')` : sql`${bodies}::bytea`
}

/** The rows of a batch, each with the place (from 1) at which its body begins among all bodies. */
function itemsOf(rows: readonly Delivery[], claimed: ReadonlySet<string> | undefined): Record<string, unknown>[] {
  let end = 0
  return rows.map((row) => ({
    id: row.id,
    webhook_id: row.webhookId,
    request_id: row.requestId,
    status: row.status,
    key_name: row.keyName,
    environment: row.environment,
    signed_at: row.signedAt.getTime() / 1000,
    received_at: row.receivedAt.getTime() / 1000,
    headers: row.headers,
    parked_reason: row.parkReason,
    is_claimed: claimed?.has(row.id) ?? false,
    start: (end += row.body.length) - row.body.length + 1,
    length: row.body.length,
  }))
}
