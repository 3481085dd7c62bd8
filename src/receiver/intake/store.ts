import { isUtf8 } from 'node:buffer'
import { atMost } from '../../platform/postgres/at-most.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { durable } from '../../platform/postgres/durable.ts'
import { claimsAnew } from '../../platform/postgres/lease.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { executePrepared } from '../../platform/postgres/prepared.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { later, postgresTime } from '../../platform/postgres/time.ts'
import type { Delivery } from '../domain/delivery.ts'
import * as schema from '../domain/schema.ts'

export type StoreOptions = {
  /** The time that replicas share (time.ts). */
  now?: SQL
  /** Deliveries to store with a claim of this process, and the length of the claim. */
  claimed?: { ids: ReadonlySet<string>; leaseSeconds: number }
}

/**
 * - `isNew`: the ids that were stored now
 * - `requeued`: ids that are due again, because another key signed them too
 * - `contended`: ids that another transaction was landing or deleting at this moment, or whose second statement failed.
 *   Whether their key changes is open, so they are to be stored again.
 */
export type StoreAnswer = { isNew: Set<string>; requeued: Set<string>; contended: Set<string> }

/**
 * Stores deliveries with their places in the queue, in one durable statement. A second statement, takingOverKeys(),
 * follows for a known delivery that came again with a key of another environment. It also follows for a delivery that
 * another transaction stored at the same moment, since the first statement does not see that row. If the environments
 * are equal, it changes nothing.
 */
export async function storeDeliveries(
  db: Database,
  rows: readonly Delivery[],
  { now = postgresTime(), claimed }: StoreOptions = {},
): Promise<StoreAnswer> {
  const stored = await answersOf<'is_new' | 'is_settled'>(db, rows, storing(rows, now, claimed))
  const isNew = idsOf(stored, 'is_new')
  const settled = idsOf(stored, 'is_settled')
  const open = rows.filter(({ id }) => !settled.has(id))
  const taken = open.length === 0 ? [] : await takeOverKeys(db, open, now, isNew.size > 0)
  return { isNew, requeued: idsOf(taken, 'is_requeued'), contended: idsOf(taken, 'is_contended') }
}

type KeyChange = 'is_requeued' | 'is_contended'

/** If this fails beside stored deliveries, only the known ones are stored again, and the error is theirs alone. */
async function takeOverKeys(
  db: Database,
  open: readonly Delivery[],
  now: SQL,
  isAnyStored: boolean,
): Promise<Answer<KeyChange>[]> {
  try {
    return await answersOf<KeyChange>(db, open, takingOverKeys(open, now))
  } catch (error) {
    if (!isAnyStored) throw error
    return open.map(({ id }) => ({ id, is_requeued: false, is_contended: true }))
  }
}

type Answer<Mark extends string> = RowOf<typeof schema.deliveries, 'id'> & Record<Mark, boolean>

/** Runs a statement that returns each row, new or known, so that a missing answer never counts as "known". */
async function answersOf<Mark extends string>(
  db: Database,
  rows: readonly Delivery[],
  statement: SQL,
): Promise<Answer<Mark>[]> {
  const answers = await executePrepared<Answer<Mark>>(db, statement)
  if (answers.length !== rows.length)
    throw new Error(`postgres answered for ${answers.length} of ${rows.length} deliveries`)
  return answers
}

function idsOf<Mark extends string>(answers: readonly Answer<Mark>[], mark: Mark): Set<string> {
  return new Set(answers.flatMap((answer) => (answer[mark] ? [answer.id] : [])))
}

/** SQL: stores new deliveries. A known one is settled if the snapshot shows it with the arriving key's environment. */
function storing(rows: readonly Delivery[], now: SQL, claimed: StoreOptions['claimed']): SQL {
  // The column of a source is written only where there is one, so that the first source is stored before a migration.
  const source = rows.some(({ sourceName }) => sourceName !== null) ? sql`, source_name` : sql``
  const bodies = Buffer.concat(rows.map(({ body }) => body))
  return sql`
    with ${durable},
    bodies as materialized (select ${toBytea(bodies)} as bytes),
    arrived as (
      select * from jsonb_to_recordset(${JSON.stringify(itemsOf(rows, claimed?.ids))}::jsonb) as a (
        id uuid, webhook_id text, source_name text, request_id uuid, status text, key_name text, environment text,
        signed_at float8, received_at float8, headers jsonb, parked_reason text,
        is_claimed boolean, start int, length int)
      limit ${atMost(rows.length)}
    ),
    stored as (
      insert into mediadock.deliveries (id, webhook_id, request_id, status, key_name, environment,
        signed_at, received_at, headers, body, parked_reason${source})
      select id, webhook_id, request_id, status, key_name, environment,
        to_timestamp(signed_at), to_timestamp(received_at), headers,
        substring(bodies.bytes from start for length), parked_reason${source}
      from arrived, bodies, durable
      on conflict (id) do nothing
      returning id
    ),
    queued as (
      insert into mediadock.inbox (delivery_id, due_at, claims)
      -- Due now, even if the clock of this host is ahead.
      select id, case when is_claimed then ${later(now, claimed?.leaseSeconds ?? 0)}
          else least(to_timestamp(received_at), ${now}) end, is_claimed::int
      from stored join arrived using (id) where parked_reason is null
    )
    -- A known delivery is acknowledged too, so this commit waits for the disk and a synchronous standby even where it
    -- wrote no row: a server that crashed while it waited for its standby shows rows that the standby never got.
    select arrived.id, stored.id is not null as is_new,
      stored.id is not null or coalesce((select d.environment is not distinct from arrived.environment
        from mediadock.deliveries d where d.id = arrived.id), false) as is_settled,
      case when stored.id is null then pg_logical_emit_message(true, 'mediadock', '') end as waited_for
    from arrived left join stored using (id)`
}

/**
 * SQL condition on a stored delivery: a live key that signs it again replaces its key. Holds if the stored key is not
 * live, and the delivery is not parked or is parked as `landing_failed`. Another key would not change the other reasons
 * to park, but for `key_mismatch`, which takingOverKeys() handles.
 */
const yieldsToLive = sql`(environment is distinct from 'live' and coalesce(parked_reason = 'landing_failed', true))`

/**
 * SQL: handles known deliveries signed with a key of another environment. A stored delivery that is parked for its key
 * takes the new key and is due again. Any other delivery does so only for a live key, pending or landed, since only a
 * live key may sign for live requests. A claim on it ends then.
 *
 * Accepting does not wait for a landing, so a locked row is left alone. Such a row, and one that was deleted meanwhile,
 * is `contended`.
 */
function takingOverKeys(rows: readonly Delivery[], now: SQL): SQL {
  const items = rows.map(({ id, keyName, environment }) => ({ id, key_name: keyName, environment }))
  return sql`
    with ${durable},
    again as (
      select a.* from durable, jsonb_to_recordset(${JSON.stringify(items)}::jsonb) as a (
        id uuid, key_name text, environment text)
      limit ${atMost(rows.length)}
    ),
    again_live as (select id from again where environment = 'live'),
    waiting as (
      select delivery_id from mediadock.inbox
      where delivery_id = any(array(select id from again_live)) for update skip locked
    ),
    yielding as (
      select id from mediadock.deliveries
      where id = any(array(select id from again))
        and (parked_reason = 'key_mismatch' or (${yieldsToLive} and id in (select id from again_live)
          and (id in (select delivery_id from waiting)
            or not exists (select from mediadock.inbox i where i.delivery_id = deliveries.id))))
      for update skip locked
    ),
    taken_over as (
      update mediadock.deliveries d
      set key_name = again.key_name, environment = again.environment, parked_reason = null
      from again
      where d.id = any(array[again.id]) and d.id in (select id from yielding)
        and d.environment is distinct from again.environment
      returning d.id
    ),
    requeued as (
      insert into mediadock.inbox (delivery_id, due_at, claims) select id, ${now}, ${claimsAnew} from taken_over
      on conflict (delivery_id) do update set due_at = excluded.due_at, claims = inbox.claims + 1
      returning delivery_id
    )
    select again.id, requeued.delivery_id is not null as is_requeued,
      requeued.delivery_id is null and (known is null or (known.environment is distinct from again.environment
        and (known.is_parked or (known.yields and again.environment = 'live')))) as is_contended
    from again left join requeued on requeued.delivery_id = again.id left join lateral (
      select environment, parked_reason = 'key_mismatch' as is_parked, ${yieldsToLive} as yields
      from mediadock.deliveries d where d.id = again.id limit 1) as known on true`
}

/**
 * SQL: all bodies of a batch as one value, as text if possible, since the driver sends a bytea as hex, twice as long.
 */
export function toBytea(bodies: Buffer): SQL {
  const storableAsText = isUtf8(bodies) && !bodies.includes(0)
  return storableAsText ? sql`convert_to(${bodies.toString()}::text, 'UTF8')` : sql`${bodies}::bytea`
}

/** Returns the rows of a batch, each with the position (from 1) of its body among all bodies. */
function itemsOf(rows: readonly Delivery[], claimed: ReadonlySet<string> | undefined): Record<string, unknown>[] {
  let end = 0
  return rows.map((row) => ({
    id: row.id,
    webhook_id: row.webhookId,
    source_name: row.sourceName ?? undefined,
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
