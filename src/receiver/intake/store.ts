import { isUtf8 } from 'node:buffer'
import type { Logger } from '../../platform/logger.ts'
import { atMost } from '../../platform/postgres/at-most.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { durable, forcedWrite } from '../../platform/postgres/durable.ts'
import { claimsAnew } from '../../platform/postgres/lease.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { executePrepared } from '../../platform/postgres/prepared.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { later, postgresTime } from '../../platform/postgres/time.ts'
import type { Delivery } from '../domain/delivery.ts'
import { toStored, type Environment } from '../domain/environment.ts'
import * as schema from '../domain/schema.ts'

/**
 * A live key outranks every other, because only it may sign for live requests. A delivery that arrives with several
 * keys is stored with the first one, or with the first live one: distinct() decides among deliveries that arrive
 * together, and `takesOver` between a stored one and one that arrives later.
 */
const outranks = (key: Environment | undefined, other: Environment | undefined) => key === 'live' && other !== 'live'
const outranksInSql = (key: SQL, other: SQL) => sql`(${key} = 'live' and ${other} <> 'live')`

/** Returns each delivery once, with the key that stands, sorted by id, so that two statements cannot deadlock. */
export function distinct(deliveries: readonly Delivery[]): Delivery[] {
  const byId = new Map<string, Delivery>()
  for (const delivery of deliveries) {
    const earlier = byId.get(delivery.id)
    if (!earlier || outranks(delivery.environment, earlier.environment)) byId.set(delivery.id, delivery)
  }
  return [...byId.values()].toSorted((a, b) => (a.id < b.id ? -1 : 1))
}

export type StoreOptions = {
  /** The time that replicas share (time.ts). */
  now?: SQL | undefined
  /** Deliveries to store with a claim of this process, and the length of the claim. */
  claimed?: { ids: Pick<ReadonlySet<string>, 'has'>; leaseSeconds: number }
  logger?: Pick<Logger, 'warn'>
}

/**
 * - `new`: it was stored now
 * - `known`: it was stored before, and nothing changed
 * - `requeued`: it was stored before. It took over the key that signed it now, and is due again.
 * - `undecided`: whether it takes over the key is open. It must be stored again.
 */
export type StoreAnswer = 'new' | 'known' | 'requeued' | 'undecided'

/**
 * Stores deliveries with their places in the inbox, in one durable statement, and returns what became of each id. A
 * second statement, takingOverKeys(), decides about a known delivery that came again with a key of another environment.
 * It also decides about one that another transaction stored at the same moment, which the first statement does not see.
 */
export async function storeDeliveries(
  db: Database,
  rows: readonly Delivery[],
  { now = postgresTime(), claimed, logger }: StoreOptions = {},
): Promise<ReadonlyMap<string, StoreAnswer>> {
  const stored = await run(db, rows, storing(rows, now, claimed))
  const undecided = rows.filter(({ id }) => stored.get(id) === 'undecided')
  if (undecided.length === 0) return stored
  try {
    return new Map([...stored, ...(await run(db, undecided, takingOverKeys(undecided, now)))])
  } catch (error) {
    // If new ones were stored, only the undecided are tried again.
    if (![...stored.values()].includes('new')) throw error
    logger?.warn({ err: error }, 'deliveries that came again with another key could not be decided, trying again')
    return stored
  }
}

/** Runs a statement that returns each row, new or known, so that a missing answer never counts as "known". */
async function run(db: Database, rows: readonly Delivery[], statement: SQL): Promise<Map<string, StoreAnswer>> {
  const answers = await executePrepared<Answer>(db, statement)
  if (answers.length !== rows.length)
    throw new Error(`postgres answered for ${answers.length} of ${rows.length} deliveries`)
  return new Map(answers.map(({ id, answer }) => [id, answer]))
}

type Answer = RowOf<typeof schema.deliveries, 'id'> & { answer: StoreAnswer }

/** SQL: stores new deliveries. Others are known if the snapshot shows them with the arriving key's environment. */
function storing(rows: readonly Delivery[], now: SQL, claimed: StoreOptions['claimed']): SQL {
  // The column of a source is written only where there is one, so that the default source is stored before a migration.
  const source = rows.some(({ sourceName }) => sourceName !== null) ? sql`, source_name` : sql``
  const { items, bodies } = batchOf(rows, (row) => ({
    id: row.id,
    webhook_id: row.webhookId,
    source_name: row.sourceName ?? undefined,
    request_id: row.requestId,
    status: row.status,
    key_name: row.keyName,
    environment: toStored(row.environment),
    signed_at: row.signedAt.getTime() / 1000,
    received_at: row.receivedAt.getTime() / 1000,
    headers: row.headers,
    parked_reason: row.parsed.kind === 'unreadable' ? row.parsed.reason : undefined,
    is_claimed: claimed?.ids.has(row.id) ?? false,
  }))
  return sql`
    with ${durable},
    bodies as materialized (select ${bodies} as bytes),
    arrived as (
      select * from jsonb_to_recordset(${items}::jsonb) as a (
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
    put_in_inbox as (
      insert into mediadock.inbox (delivery_id, due_at, claims)
      select id, case when is_claimed then ${later(now, claimed?.leaseSeconds ?? 0)}
          -- Due now, even if the clock of this host is ahead.
          else least(to_timestamp(received_at), ${now}) end, is_claimed::int
      from stored join arrived using (id) where parked_reason is null
    )
    -- A known delivery is acknowledged too, so the commit must be durable even if it stored no row.
    select arrived.id, case when stored.id is not null then 'new'
        when (select d.environment = arrived.environment
          from mediadock.deliveries d where d.id = arrived.id) then 'known'
        else 'undecided' end as answer,
      case when stored.id is null then ${forcedWrite} end as waited_for
    from arrived left join stored using (id)`
}

/**
 * SQL condition on a stored delivery `d` that came again as `again`: it takes over the key. The environments differ,
 * and:
 *
 * | stored delivery                          | came with a live key | came with another key |
 * | ---------------------------------------- | -------------------- | --------------------- |
 * | parked as `key_mismatch`                 | takes it over        | takes it over         |
 * | not parked, or parked as `landing_failed` | takes it over        | does not              |
 * | parked for another reason                | does not             | does not              |
 *
 * No key makes an unreadable delivery readable.
 */
const takesOver = sql`(d.environment <> again.environment and case
  when d.parked_reason = 'key_mismatch' then true
  when d.parked_reason is null or d.parked_reason = 'landing_failed'
    then ${outranksInSql(sql`again.environment`, sql`d.environment`)}
  else false end)`

/**
 * SQL: lets known deliveries take over the keys with which they came again. Each is then due again, also if it has
 * landed, and a claim on it ends. Accepting does not wait for a landing, so a row that another transaction holds stays
 * undecided. So does one that was deleted or changed meanwhile.
 */
function takingOverKeys(rows: readonly Delivery[], now: SQL): SQL {
  const items = rows.map(({ id, keyName, environment }) => ({
    id,
    key_name: keyName,
    environment: toStored(environment),
  }))
  return sql`
    with ${durable},
    again as (
      select again.*, (select ${takesOver} from mediadock.deliveries d where d.id = again.id) as takes_over
      from durable, jsonb_to_recordset(${JSON.stringify(items)}::jsonb) as again (
        id uuid, key_name text, environment text)
      limit ${atMost(rows.length)}
    ),
    takers as (select id from again where takes_over),
    -- Of the takers, "free" are those that no other transaction has locked, neither here nor in the inbox.
    in_inbox as (select delivery_id as id from mediadock.inbox where delivery_id = any(array(select id from takers))),
    free_in_inbox as (
      select delivery_id as id from mediadock.inbox where delivery_id = any(array(select id from takers))
      for update skip locked
    ),
    free as (
      select id from mediadock.deliveries where id = any(array(
        select id from takers except (select id from in_inbox except select id from free_in_inbox)))
      for update skip locked
    ),
    taken_over as (
      update mediadock.deliveries d
      set key_name = again.key_name, environment = again.environment, parked_reason = null
      from again
      where d.id = any(array[again.id]) and d.id in (select id from free) and ${takesOver}
      returning d.id
    ),
    requeued as (
      insert into mediadock.inbox (delivery_id, due_at, claims) select id, ${now}, ${claimsAnew} from taken_over
      on conflict (delivery_id) do update set due_at = excluded.due_at, claims = inbox.claims + 1
      returning delivery_id
    )
    select again.id, case when requeued.delivery_id is not null then 'requeued'
      when not again.takes_over then 'known'
      else 'undecided' end as answer
    from again left join requeued on requeued.delivery_id = again.id`
}

/**
 * Returns a batch as parameters of a statement: the rows as JSON, each with the position (from 1) of its body among all
 * bodies, and the bodies as one value. They are sent as text if possible, since the driver sends a bytea as hex, twice
 * as long.
 */
export function batchOf<Row extends { body: Buffer }>(
  rows: readonly Row[],
  columnsOfRow: (row: Row) => object,
): { items: string; bodies: SQL } {
  let end = 0
  const items = rows.map((row) => {
    const { length } = row.body
    end += length
    return { ...columnsOfRow(row), start: end - length + 1, length }
  })
  const all = Buffer.concat(rows.map(({ body }) => body))
  const isStorableAsText = isUtf8(all) && !all.includes(0)
  const bodies = isStorableAsText ? sql`convert_to(${all.toString()}::text, 'UTF8')` : sql`${all}::bytea`
  return { items: JSON.stringify(items), bodies }
}
