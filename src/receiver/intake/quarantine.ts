import { setTimeout as delay } from 'node:timers/promises'
import type { Counter } from 'prom-client'
import { createShares } from '../../platform/fair-share.ts'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { and, eq, gt, inArray, sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { createWriteBehind } from '../../platform/write-behind.ts'
import * as arriving from '../domain/arrivals-schema.ts'
import { claimedRequestId, type Delivery, deliveryId, toDelivery } from '../domain/delivery.ts'
import { signedEnvironment, sourceOf, type Keys } from '../domain/keys.ts'
import { atOnce, storedName } from '../domain/source.ts'
import { pathIn } from '../domain/webhook-path.ts'
import { noteKeyUses } from './arrival-log.ts'
import { senderOf, type KnownSenders } from './known-senders.ts'
import { createQuarantineBounds } from './quarantine-bounds.ts'
import { redacted } from './request-headers.ts'
import { toBytea, storeDeliveries } from './store.ts'
import type { Refused } from './webhook.ts'

const quarantine = columnsOf(arriving.quarantine)

/** The memory for waiting rows. One known sender, or all strangers together, can take four fifths (createShares). */
const maxWaiting = { rows: 40_000, bytes: 40 * 1024 * 1024 }
/** The memory of a row besides its texts. */
const rowOverheadBytes = 1024
/** Limits how busy refused arrivals keep Postgres. */
const bytesPerSecond = 4 * 1024 * 1024

type Row = {
  arrivedAt: Date
  reason: string
  webhookId: string | undefined
  sender: string
  headers: string
  body: Buffer
  /** The owner of the share of memory that the row takes, and its size. */
  owner: string
  bytes: number
}

export type Quarantine = {
  record: (refused: Refused) => void
  runOnce: () => Promise<{ more: boolean }>
  waiting: () => number
}

export type QuarantineDeps = {
  db: Database
  senders: KnownSenders
  dropped: Counter
  maxRows: number
  maxBytes: number
  wake: () => void
  /** After it aborts, waiting rows are written without rests. */
  signal: AbortSignal
}

/**
 * Creates the quarantine, which keeps refused arrivals whole, so that they can be verified again after a missing secret
 * is added. Rows are written after the answers, and bounded in memory and in the table (quarantine-bounds.ts).
 * Strangers leave room for known senders.
 */
export function createQuarantine({
  db,
  senders,
  dropped,
  maxRows,
  maxBytes,
  wake,
  signal,
}: QuarantineDeps): Quarantine {
  let writtenBytes = 0
  let restUntil = 0
  const room = createShares(maxWaiting)
  const rows = createWriteBehind<Row>({
    write: async (batch) => {
      await insert(db, batch)
      writtenBytes += batch.reduce((sum, { bytes }) => sum + bytes, 0)
    },
    rowsPerWrite: 100,
    bytesPerWrite: 1024 * 1024,
    room,
    costOf: ({ owner, bytes }) => ({ owner, bytes }),
    dropped,
    wake,
  })
  const bounds = createQuarantineBounds({ db, maxRows, maxBytes })

  return {
    record: (refused) => {
      const sender = senderOf(refused.remote)
      const owner = senders.isKnown(sender) ? sender : 'strangers'
      // Checked before the row is built, so that a flood without room costs little.
      if (!room.isOpen(owner)) return dropped.inc()
      const headers = JSON.stringify(refused.headers())
      const { arrivedAt, reason, webhookId } = refused
      // Two bytes per character, since a string outside Latin-1 is stored in that way.
      const bytes = rowOverheadBytes + refused.body.length + headers.length * 2 + (webhookId?.length ?? 0)
      return rows.add({ arrivedAt, reason, webhookId, sender, headers, body: ownBytes(refused.body), owner, bytes })
    },
    runOnce: async () => {
      const rest = restUntil - performance.now()
      if (rest > 0 && !signal.aborted) await delay(rest, undefined, { signal }).catch(() => {})
      writtenBytes = 0
      await senders.keep()
      const { written, more } = await rows.writeSome()
      restUntil = performance.now() + Math.min(1000, (writtenBytes / bytesPerSecond) * 1000)
      if (written > 0) await bounds.keep({ rows: written, bytes: writtenBytes })
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
  let end = 0
  const items = batch.map(({ arrivedAt, reason, webhookId, sender, headers, body }) => ({
    arrived_at: arrivedAt,
    reason,
    webhook_id: webhookId,
    request_id: claimedRequestId(body),
    sender,
    headers,
    start: (end += body.length) - body.length + 1,
    length: body.length,
  }))
  await db.execute(sql`
    with bodies as materialized (select ${toBytea(Buffer.concat(batch.map(({ body }) => body)))} as bytes)
    insert into mediadock.quarantine
      (${list(quarantine, 'arrived_at', 'reason', 'webhook_id', 'request_id', 'source', 'headers', 'body')})
    select arrived_at, reason, webhook_id, request_id, sender, headers::jsonb,
      substring(bodies.bytes from start for length)
    from jsonb_to_recordset(${JSON.stringify(items)}::jsonb) as r (
      arrived_at timestamptz, reason text, webhook_id text, request_id uuid, sender text, headers text, start int,
      length int), bodies
    where set_config('synchronous_commit', 'off', true) = 'off'`)
}

export type VerifyDeps = { db: Database; keys: () => Keys; onStored: () => void }

export type VerifyOptions = {
  /** Only arrivals refused for this reason. */
  reason?: string | undefined
  /** Called with the accepted deliveries, and how many of them another attempt had stored already. */
  onAccepted?: (deliveryIds: readonly string[], known: number) => void
}

export type Verified = { checked: number; accepted: number; refused: number }

/**
 * Verifies the whole quarantine again and accepts authentic arrivals. It uses the present secrets, and judges the
 * window by the time of arrival. An arrival without a usable id is not a delivery, and stays.
 */
export async function verifyQuarantine(
  { db, keys, onStored }: VerifyDeps,
  { reason, onAccepted }: VerifyOptions = {},
): Promise<Verified> {
  const verified: Verified = { checked: 0, accepted: 0, refused: 0 }
  let after = 0
  for (;;) {
    const rows = await nextRows(db, { after, reason })
    if (rows.length === 0) return verified
    after = rows.at(-1)?.id ?? after
    const authentic = rows.flatMap((row) => {
      const delivery = admitAgain(row, keys())
      return delivery ? [{ id: row.id, delivery }] : []
    })
    // One row per delivery: it may have been refused several times, signed with several keys, of which a live one wins.
    const isLive = ({ delivery }: (typeof authentic)[number]) => Number(delivery.environment === 'live')
    const liveLast = authentic.toSorted((a, b) => isLive(a) - isLive(b))
    const deliveries = [...new Map(liveLast.map(({ delivery }) => [delivery.id, delivery])).values()]
    if (authentic.length > 0) {
      await noteKeyUses(
        db,
        authentic.map(({ delivery: { keyName, receivedAt: at } }) => ({ keyName, at, matches: 1 })),
      )
      const stored = await storeVerified(
        db,
        deliveries.toSorted((a, b) => (a.id < b.id ? -1 : 1)),
        authentic.map(({ id }) => id),
      )
      onStored()
      onAccepted?.(
        deliveries.map(({ id }) => id),
        deliveries.length - stored.isNew.size,
      )
    }
    verified.checked += rows.length
    verified.accepted += authentic.length
    verified.refused += rows.length - authentic.length
  }
}

/**
 * Stores the authentic deliveries of a page and deletes their rows of the quarantine. While another transaction holds
 * one of the deliveries, it deletes no row and tries again, for about 5 s. Then it throws.
 */
async function storeVerified(
  db: Database,
  deliveries: readonly Delivery[],
  quarantineIds: readonly number[],
): Promise<{ isNew: ReadonlySet<string> }> {
  const isNew = new Set<string>()
  for (let tries = 1; tries <= 50; tries += 1) {
    const stored = await storeDeliveries(db, deliveries, { quarantineIds })
    for (const id of stored.isNew) isNew.add(id)
    if (stored.contended.size === 0) return { isNew }
    await delay(100)
  }
  throw new Error('another transaction holds deliveries of the quarantine: verify again after it has ended')
}

/** A refused arrival, as stored in the quarantine. */
export type Quarantined = {
  id: number
  arrivedAt: Date
  reason: string
  webhookId: string | undefined
  headers: Record<string, string>
  body: Buffer
}

const { id, arrived_at, reason, webhook_id, headers, body } = arriving.quarantine
export const quarantinedColumns = { id, arrived_at, reason, webhook_id, headers, body }
type QuarantinedRow = Pick<typeof arriving.quarantine.$inferSelect, keyof typeof quarantinedColumns>

export function toQuarantined({ arrived_at, webhook_id, ...row }: QuarantinedRow): Quarantined {
  return { ...row, arrivedAt: new Date(arrived_at), webhookId: webhook_id ?? undefined }
}

async function nextRows(
  db: Database,
  { after, reason }: { after: number; reason: string | undefined },
): Promise<Quarantined[]> {
  const page = db
    .select({ id, bytes: arriving.quarantine.bytes })
    .from(arriving.quarantine)
    .where(and(gt(id, after), reason === undefined ? undefined : eq(arriving.quarantine.reason, reason)))
    .orderBy(id)
    .limit(100)
    .as('page')
  const summed = sql`
    select id, row_number() over oldest as place, sum(bytes) over oldest as total
    from ${page} window oldest as (order by id)`
  const chosen = sql`(select id from (${summed}) as summed where place = 1 or total <= ${4 * 1024 * 1024})`
  const rows = await db.select(quarantinedColumns).from(arriving.quarantine).where(inArray(id, chosen)).orderBy(id)
  return rows.map(toQuarantined)
}

/** Verifies a quarantined arrival with the present secrets. Returns its delivery; undefined if it is not authentic. */
export function admitAgain({ arrivedAt, headers, body }: Quarantined, keys: Keys): Delivery | undefined {
  const source = sourceOf(keys, pathIn(headers).sourceName)
  // Its source was removed from the settings, or its webhooks are unsigned now: those are never stored.
  if (source?.kind.promises.signed !== true) return undefined
  const { kind, secrets } = source
  const arrived = { body, header: (name: string) => (headers[name] === undefined ? [] : [headers[name]]) }
  const identity = kind.identify(arrived)
  if (!identity.ok) return undefined
  const verification = atOnce(kind.verify(arrived, secrets, Math.floor(arrivedAt.getTime() / 1000)))
  if (!verification.ok) return undefined
  const kept = { ...headers }
  for (const name of kind.promises.signatureHeaders) if (kept[name] !== undefined) kept[name] = redacted
  const { webhookId } = identity
  const { keyName, timestampSeconds } = verification
  return toDelivery({
    source,
    id: deliveryId(webhookId, body, storedName(source)),
    webhookId,
    body,
    headers: kept,
    receivedAt: arrivedAt,
    environment: signedEnvironment(keys, keyName),
    keyName,
    timestampSeconds,
  })
}
