import { setTimeout as delay } from 'node:timers/promises'
import type { Counter } from 'prom-client'
import { createShares, type Amount } from '../../platform/fair-share.ts'
import { senderOf } from '../../platform/http/sender.ts'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import { notDurable } from '../../platform/postgres/durable.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { createWriteBehind } from '../../platform/write-behind.ts'
import * as arriving from '../domain/arrivals-schema.ts'
import { statedRequestId } from '../domain/delivery.ts'
import { batchOf } from './store.ts'

const quarantine = columnsOf(arriving.quarantine)
const knownSenders = columnsOf(arriving.knownSenders)

/** The memory for waiting rows. One known sender, or all unknown ones together, can take four fifths (createShares). */
const maxWaiting = { rows: 40_000, bytes: 40 * 1024 * 1024 }
/** The owner of the rows of all unknown senders. No sender has this name: see senderOf(). */
const unknownSenders = 'unknown senders'
/** The memory of a row besides its texts. */
const rowOverheadBytes = 1024
/** Limits how busy refused arrivals keep Postgres. */
const bytesPerSecond = 4 * 1024 * 1024

/** An arrival that was refused for its id or signature. */
export type Refused = {
  arrivedAt: Date
  reason: string
  webhookId: string | undefined
  remote: string | undefined
  /** A function, so that headers are copied only if there is room for them. */
  headers: () => Record<string, string>
  body: Buffer
}

type Row = Omit<Refused, 'headers' | 'remote'> & {
  sender: string
  headers: string
  /** The owner of the share of memory that the row takes, and its size. */
  owner: string
  bytes: number
}

export type Quarantine = ReturnType<typeof createQuarantine>

export type QuarantineDeps = {
  db: Database
  clock: () => Date
  dropped: Counter
  maxRows: number
  maxBytes: number
  wake: () => void
  /** After it aborts, waiting rows are written without rests. */
  signal: AbortSignal
}

/**
 * Creates the quarantine, which keeps refused arrivals whole, so that they can be verified again after a missing secret
 * is added. An arrival that was refused because the clock of this host was wrong is refused again, since its time of
 * arrival is by that clock. Rows are written after the answers, and bounded in memory and in the table. Unknown
 * senders leave room for known ones.
 */
export function createQuarantine({ db, clock, dropped, maxRows, maxBytes, wake, signal }: QuarantineDeps) {
  const senders = createKnownSenders({ db, clock })
  let restUntil = 0
  const room = createShares(maxWaiting)
  const rows = createWriteBehind<Row>({
    write: (batch) => insert(db, batch),
    rowsPerWrite: 100,
    bytesPerWrite: 1024 * 1024,
    room,
    costOf: ({ owner, bytes }) => ({ owner, bytes }),
    dropped,
    wake,
  })
  const keepBounds = createTableBounds(db, { rows: maxRows, bytes: maxBytes })

  return {
    record: (refused: Refused): void => {
      const sender = senderOf(refused.remote)
      const owner = senders.isKnown(sender) ? sender : unknownSenders
      // Checked before the row is built, so that a flood without room costs little.
      if (!room.isOpen(owner)) return dropped.inc()
      const headers = JSON.stringify(refused.headers())
      const { arrivedAt, reason, webhookId } = refused
      // Two bytes per character, since a string outside Latin-1 is stored in that way.
      const bytes = rowOverheadBytes + refused.body.length + headers.length * 2 + (webhookId?.length ?? 0)
      return rows.add({ arrivedAt, reason, webhookId, sender, headers, body: ownBytes(refused.body), owner, bytes })
    },
    runOnce: async (): Promise<{ more: boolean }> => {
      const rest = restUntil - performance.now()
      if (rest > 0 && !signal.aborted) await delay(rest, undefined, { signal }).catch(() => {})
      await senders.refresh()
      const { written, more } = await rows.writeSome()
      restUntil = performance.now() + Math.min(1000, (written.bytes / bytesPerSecond) * 1000)
      if (written.rows > 0) await keepBounds(written)
      return { more }
    },
    waiting: rows.waiting,
  }
}

/** Copies a small body out of its buffer, which would keep the whole of a large read in memory. */
function ownBytes(body: Buffer): Buffer {
  if (body.buffer.byteLength <= body.length + rowOverheadBytes) return body
  const own = Buffer.allocUnsafeSlow(body.length)
  body.copy(own)
  return own
}

async function insert(db: Database, batch: readonly Row[]): Promise<void> {
  const { items, bodies } = batchOf(batch, ({ arrivedAt, reason, webhookId, sender, headers, body }) => ({
    arrived_at: arrivedAt,
    reason,
    webhook_id: webhookId,
    request_id: statedRequestId(body),
    sender,
    headers,
  }))
  await db.execute(sql`
    with bodies as materialized (select ${bodies} as bytes)
    insert into mediadock.quarantine
      (${list(quarantine, 'arrived_at', 'reason', 'webhook_id', 'request_id', 'source', 'headers', 'body')})
    select arrived_at, reason, webhook_id, request_id, sender, headers::jsonb,
      substring(bodies.bytes from start for length)
    from jsonb_to_recordset(${items}::jsonb) as r (
      arrived_at timestamptz, reason text, webhook_id text, request_id uuid, sender text, headers text, start int,
      length int), bodies
    where ${notDurable}`)
}

/** Other replicas write too, so the table is measured again after this time. */
const lookAgainMs = 1000
/** From this bound on, a tenth more is deleted, so that not every batch deletes. Smaller bounds are kept exactly. */
const roundedRows = 1000
/** The limit of locked rows per statement. */
const deletesPerStatement = 1000

/** Keeps the table within its rows and bytes. It is measured only when it may have outgrown them. */
function createTableBounds(db: Database, max: Amount): (written: Amount) => Promise<void> {
  let room = { rows: 0, bytes: 0 }
  let lookedAt = -Infinity
  const share = max.rows < roundedRows ? 1 : 0.9
  const kept = { rows: Math.ceil(max.rows * share), bytes: Math.ceil(max.bytes * share) }

  return async ({ rows, bytes }) => {
    room = { rows: room.rows - rows, bytes: room.bytes - bytes }
    if (room.rows >= 0 && room.bytes >= 0 && performance.now() - lookedAt < lookAgainMs) return
    lookedAt = performance.now()
    for (;;) {
      const used = await weigh(db)
      room = { rows: max.rows - used.rows, bytes: max.bytes - used.bytes }
      if (room.rows >= 0 && room.bytes >= 0) return
      if ((await trim(db, kept)) === 0) return
    }
  }
}

async function weigh(db: Database): Promise<Amount> {
  const [used] = await db.execute<{ rows: number; bytes: string }>(sql`
    select count(*)::int as rows, coalesce(sum(${quarantine.bytes}), 0)::text as bytes from mediadock.quarantine`)
  if (!used) throw new Error('Postgres returned no row for the size of the quarantine')
  return { rows: used.rows, bytes: Number(used.bytes) }
}

/**
 * Keeps the newest rows, at most half of them of one sender, rows of known senders before those of
 * unknown ones. A large row counts as several, by its bytes, so the bound of bytes holds too. Deletes others and returns
 * their number.
 */
async function trim(db: Database, kept: Amount): Promise<number> {
  const gone = await db.execute(sql`
    with counted as (
      select ${list(quarantine, 'id', 'source', 'arrived_at')},
        greatest(1, ${quarantine.bytes}::float8 * ${kept.rows}::int / ${kept.bytes}::bigint) as counts,
        coalesce(${quarantine.source} in (select ${knownSenders.source} from mediadock.known_senders), false) as is_known
      from mediadock.quarantine
    ),
    of_senders as (
      select *, sum(counts) over (
          partition by source order by arrived_at desc, id desc rows unbounded preceding) as of_sender
      from counted
    ),
    newest as (
      select id, sum(counts) over (
          order by is_known desc, arrived_at desc, id desc rows unbounded preceding) as total
      from of_senders where of_sender <= ceil(${kept.rows}::int / 2.0)
    )
    delete from mediadock.quarantine where ${quarantine.id} in (
      select id from counted where id not in (select id from newest where total <= ${kept.rows}::int)
      order by arrived_at, id limit ${deletesPerStatement})
    returning ${quarantine.id}`)
  return gone.length
}

/** The latest addresses per key: the holder of one secret must not fill the table, or displace others' senders. */
const maxSendersPerKey = 64
/** A new sender has no room of its own for up to this long. */
const refreshMs = 60_000

/**
 * The senders of recent authentic deliveries to any replica, which the log of arrivals writes. A refused arrival from
 * one of them may be authentic too, signed with a secret that is missing here. The quarantine has room for it that
 * unknown senders cannot take.
 */
function createKnownSenders({ db, clock }: { db: Database; clock: () => Date }) {
  let known: ReadonlySet<string> = new Set()
  let readAt = -Infinity

  return {
    isKnown: (sender: string): boolean => known.has(sender),
    /** Reads the senders of the last seven days, as often as needed. May be called at any rate. */
    refresh: async (): Promise<void> => {
      if (performance.now() - readAt < refreshMs) return
      await forgetSenders(db, new Date(clock().getTime() - 7 * 86_400_000))
      const rows = await db.selectDistinct({ sender: arriving.knownSenders.source }).from(arriving.knownSenders)
      known = new Set(rows.map(({ sender }) => sender))
      readAt = performance.now()
    },
  }
}

async function forgetSenders(db: Database, cutoff: Date): Promise<void> {
  await db.execute(sql`
    delete from mediadock.known_senders where (${list(knownSenders, 'key_name', 'source')}) in (
      select key_name, source from (
        select ${list(knownSenders, 'key_name', 'source', 'last_at')},
          row_number() over (
            partition by ${knownSenders.key_name} order by ${knownSenders.last_at} desc, ${knownSenders.source}) as place
        from mediadock.known_senders
      ) as ranked where place > ${maxSendersPerKey} or last_at < ${cutoff.toISOString()}::timestamptz)`)
}
