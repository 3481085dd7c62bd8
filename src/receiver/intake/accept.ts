import { isUtf8 } from 'node:buffer'
import { sql, type SQL } from 'drizzle-orm'
import { withDeadline } from '../../runtime/deadline.ts'
import type { Logger } from '../../runtime/logger.ts'
import { columnsOf, list } from '../../runtime/postgres/columns.ts'
import { isAboutTheData } from '../../runtime/postgres/errors.ts'
import { type Database } from '../../runtime/postgres/postgres.ts'
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
    'signed_at',
    'received_at',
    'headers',
    'body',
    'parked_reason',
  ),
  inbox: list(columnsOf(schema.inbox), 'delivery_id', 'lane', 'due_at', 'key_name'),
}
const quarantine = columnsOf(arriving.quarantine)

export type Acceptance = 'accepted' | 'duplicate' | 'parked'

/** Not durable, so not acknowledged: the provider will try again. */
export class UnavailableError extends Error {
  override name = 'UnavailableError'
  code = 'unavailable' as const
  reason: string
  constructor(reason: string, options?: ErrorOptions) {
    super(`the delivery could not be stored: ${reason}`, options)
    this.reason = reason
  }
}

const maxFlushesInFlight = 2
const maxFlushRows = 256
const maxFlushBytes = 4 * 1024 * 1024
const maxWaitingRows = 5000
const maxWaitingBytes = 64 * 1024 * 1024
const answerWithinMs = 4500

type Waiting = { delivery: Delivery; resolve: (acceptance: Acceptance) => void; reject: (error: Error) => void; abandoned: boolean }

export type Acceptor = {
  /** Settles once the delivery is committed, or rejects with UnavailableError within 5 s. */
  accept: (delivery: Delivery) => Promise<Acceptance>
  waiting: () => number
}

export type AcceptorDeps = {
  db: Database
  logger: Logger
  /** Called with the size of each flush. */
  onFlush?: (deliveries: number) => void
  /** Called when deliveries of these lanes are committed and wait to be landed. */
  onStored: (lanes: ReadonlySet<Delivery['lane']>) => void
}

/**
 * Accepts in natural batches: what arrives while a flush is in flight is
 * gathered and goes with the next one, as one statement; so does what the
 * process reads from its sockets in one turn. There is no timer, so a delivery
 * that comes alone is written alone, at once.
 */
export function createAcceptor(deps: AcceptorDeps): Acceptor {
  let queue: Waiting[] = []
  let queuedBytes = 0
  let inFlight = 0
  let isPumpDue = false

  const next = () => {
    inFlight -= 1
    pump()
  }

  const pump = () => {
    while (inFlight < maxFlushesInFlight && queue.length > 0) {
      const batch = takeBatch()
      if (batch.length === 0) return
      inFlight += 1
      deps.onFlush?.(batch.length)
      // A statement that is lost with its connection may never settle; everyone who waited for it has been answered by then.
      withDeadline(flush(deps, batch), answerWithinMs + 500, 'a flush').then(next, (error: unknown) => {
        deps.logger.error({ err: error, deliveries: batch.length }, 'a flush did not settle, going on without it')
        next()
      })
    }
  }

  /** The first of a hundred that were read together must not leave alone: it would take as long as all of them. */
  const pumpAfterThisTurn = () => {
    if (isPumpDue) return
    isPumpDue = true
    setImmediate(() => {
      isPumpDue = false
      pump()
    })
  }

  const takeBatch = (): Waiting[] => {
    const batch: Waiting[] = []
    let bytes = 0
    let taken = 0
    for (const waiting of queue) {
      if (batch.length === maxFlushRows || bytes > maxFlushBytes) break
      taken += 1
      queuedBytes -= waiting.delivery.body.length
      if (waiting.abandoned) continue
      bytes += waiting.delivery.body.length
      batch.push(waiting)
    }
    queue = queue.slice(taken)
    return batch
  }

  const accept = async (delivery: Delivery): Promise<Acceptance> => {
    if (queue.length >= maxWaitingRows || queuedBytes >= maxWaitingBytes) throw new UnavailableError('too_much_waiting')
    const { promise, resolve, reject } = Promise.withResolvers<Acceptance>()
    const waiting = { delivery, resolve, reject, abandoned: false }
    const timer = setTimeout(() => {
      waiting.abandoned = true
      reject(new UnavailableError('postgres_too_slow'))
    }, answerWithinMs)
    queue.push(waiting)
    queuedBytes += delivery.body.length
    pumpAfterThisTurn()
    try {
      return await promise
    } finally {
      clearTimeout(timer)
    }
  }
  return { accept, waiting: () => queue.length }
}

/** Settles every waiting delivery of the batch; never rejects. */
async function flush(deps: AcceptorDeps, batch: readonly Waiting[]): Promise<void> {
  const byId = Map.groupBy(batch, ({ delivery }) => delivery.id)
  // In the order of the key, so that two flushes can never wait for each other.
  const rows = [...byId.keys()].sort().flatMap((id) => byId.get(id)?.[0]?.delivery ?? [])
  try {
    const stored = await storeDeliveries(deps.db, rows)
    for (const [id, group] of byId) {
      group.forEach(({ delivery, resolve }, at) => {
        if (at > 0 || !stored.has(id)) resolve('duplicate')
        else resolve(delivery.parkReason === undefined ? 'accepted' : 'parked')
      })
    }
    if (stored.size > 0) deps.onStored(new Set(rows.map(({ lane }) => lane)))
  } catch (error) {
    if (batch.length > 1 && isAboutTheData(error)) {
      const half = Math.ceil(batch.length / 2)
      await flush(deps, batch.slice(0, half))
      await flush(deps, batch.slice(half))
      return
    }
    // Once for the batch, not once for each: in an outage there are many of them.
    deps.logger.error({ err: error, deliveries: batch.length }, 'deliveries could not be stored and were not acknowledged')
    for (const { reject } of batch) reject(new UnavailableError('postgres_failed', { cause: error }))
  }
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
  quarantineIds: readonly number[] = [],
): Promise<Set<string>> {
  const released =
    quarantineIds.length === 0
      ? sql``
      : sql`released as (delete from mediadock.quarantine where ${quarantine.id} = any(${sql.param([...quarantineIds])}::bigint[])),`
  const bodies = Buffer.concat(rows.map(({ body }) => body))
  const answers = await executePrepared<RowOf<typeof schema.deliveries, 'id'> & { is_new: boolean }>(
    db,
    sql`
    with durable as (select set_config('synchronous_commit', 'on', true)),
    ${released}
    bodies as materialized (select ${bytesOf(bodies)} as bytes),
    arrived as (
      select * from jsonb_to_recordset(${JSON.stringify(itemsOf(rows))}::jsonb) as a (
        id uuid, webhook_id text, request_id uuid, status text, key_name text, signed_at float8, received_at float8,
        headers jsonb, parked_reason text, lane text, start int, length int)
      -- As many as there are: it tells the planner, who would expect 100.
      limit ${rows.length}
    ),
    stored as (
      insert into mediadock.deliveries
        (${written.deliveries})
      select id, webhook_id, request_id, status, key_name, to_timestamp(signed_at), to_timestamp(received_at), headers,
        substring(bodies.bytes from start for length), parked_reason
      from arrived, bodies, durable
      on conflict (id) do nothing
      returning id
    ),
    queued as (
      insert into mediadock.inbox (${written.inbox})
      select id, lane, to_timestamp(received_at), key_name from stored join arrived using (id) where parked_reason is null
    )
    select arrived.id, stored.id is not null as is_new from arrived left join stored using (id)`,
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
function itemsOf(rows: readonly Delivery[]): Record<string, unknown>[] {
  let end = 0
  return rows.map((row) => ({
    id: row.id,
    webhook_id: row.webhookId,
    request_id: row.requestId,
    status: row.status,
    key_name: row.keyName,
    signed_at: row.signedAt.getTime() / 1000,
    received_at: row.receivedAt.getTime() / 1000,
    headers: row.headers,
    parked_reason: row.parkReason,
    lane: row.lane,
    start: (end += row.body.length) - row.body.length + 1,
    length: row.body.length,
  }))
}
