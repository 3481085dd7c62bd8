import { isUtf8 } from 'node:buffer'
import { atMost } from '../../runtime/postgres/at-most.ts'
import { columnsOf, list } from '../../runtime/postgres/columns.ts'
import { sql, type SQL } from '../../runtime/postgres/drizzle.ts'
import { durable } from '../../runtime/postgres/durable.ts'
import type { Database } from '../../runtime/postgres/postgres.ts'
import { executePrepared } from '../../runtime/postgres/prepared.ts'
import type { RowOf } from '../../runtime/postgres/rows.ts'
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
  inbox: list(columnsOf(schema.inbox), 'delivery_id', 'lane', 'due_at', 'claims', 'key_name'),
}
const quarantine = columnsOf(arriving.quarantine)

export type StoreOptions = {
  /** Those that are stored as claimed once, so that nobody else takes them before that time. */
  claimed?: readonly { id: string; claimedUntil: Date }[]
  /** What is taken out of the quarantine with it. */
  quarantineIds?: readonly number[]
}

/**
 * One statement: the deliveries, their place in the queue, and the promise that
 * the commit is on disk. What comes out of the quarantine leaves it by the same
 * statement. Answers the ids that were new; every row has to come back, new or
 * known, so that an answer that is none is never taken for "known already".
 */
export async function storeDeliveries(
  db: Database,
  rows: readonly Delivery[],
  { claimed = [], quarantineIds = [] }: StoreOptions = {},
): Promise<Set<string>> {
  const released =
    quarantineIds.length === 0
      ? sql``
      : sql`released as (delete from mediadock.quarantine where ${quarantine.id} = any(${sql.param([...quarantineIds])}::bigint[])),`
  const bodies = Buffer.concat(rows.map(({ body }) => body))
  const answers = await executePrepared<RowOf<typeof schema.deliveries, 'id'> & { is_new: boolean }>(
    db,
    sql`
    with ${durable},
    ${released}
    bodies as materialized (select ${bytesOf(bodies)} as bytes),
    arrived as (
      select * from jsonb_to_recordset(${JSON.stringify(itemsOf(rows, claimed))}::jsonb) as a (
        id uuid, webhook_id text, request_id uuid, status text, key_name text, environment text, signed_at float8, received_at float8,
        headers jsonb, parked_reason text, lane text, claimed_until float8, start int, length int)
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
      -- Due now, whatever the clock says of the host that it came to.
      select id, lane, coalesce(to_timestamp(claimed_until), least(to_timestamp(received_at), now())), (claimed_until is not null)::int, key_name from stored join arrived using (id) where parked_reason is null
    )
    -- What is known already is acknowledged as well, so this commit has to wait for the disk and a synchronous standby
    -- even where it wrote no row: one that crashed while it waited for its standby shows what the standby never got.
    select arrived.id, stored.id is not null as is_new,
      case when stored.id is null then pg_logical_emit_message(true, 'mediadock', '') end as waited_for
    from arrived left join stored using (id)`,
  )
  if (answers.length !== rows.length) throw new Error(`postgres answered for ${answers.length} of ${rows.length} deliveries`)
  return new Set(answers.flatMap(({ id, is_new: isNew }) => (isNew ? [id] : [])))
}

/**
 * All bodies of a batch as one value that is cut up over there. As text
 * wherever they can be one: the driver writes a bytea as hex, twice as long.
 */
export function bytesOf(bodies: Buffer): SQL {
  const storableAsText = isUtf8(bodies) && !bodies.includes(0)
  return storableAsText ? sql`convert_to(${bodies.toString()}::text, 'UTF8')` : sql`${bodies}::bytea`
}

/** The rows of a batch, each with where its body begins (from 1) among all of them. */
function itemsOf(rows: readonly Delivery[], claimed: NonNullable<StoreOptions['claimed']>): Record<string, unknown>[] {
  const until = new Map(claimed.map(({ id, claimedUntil }) => [id, claimedUntil.getTime() / 1000]))
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
    lane: row.lane,
    claimed_until: until.get(row.id),
    start: (end += row.body.length) - row.body.length + 1,
    length: row.body.length,
  }))
}
