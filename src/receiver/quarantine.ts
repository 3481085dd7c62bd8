import { sql } from 'drizzle-orm'
import type { Counter } from 'prom-client'
import type { Database } from '../runtime/postgres.ts'
import { verify } from '../wire/signature.ts'
import { storeDeliveries } from './accept.ts'
import { deliveryId, toDelivery, webhookIdPattern, type Delivery } from './delivery.ts'
import { noteKeyUses } from './on-call/key-uses.ts'
import type { Keys } from './keys.ts'
import type { Refused } from './webhook.ts'
import { createWriteBehind } from './write-behind.ts'

const maxWaitingBytes = 8 * 1024 * 1024
const flushRows = 100

export type Quarantine = {
  record: (refused: Refused) => void
  runOnce: () => Promise<{ more: boolean }>
  waiting: () => number
}

export type QuarantineDeps = { db: Database; dropped: Counter; maxRows: number; maxBytes: number; wake: () => void }

/**
 * Keeps refused arrivals whole, so that they can be verified again once a
 * missing secret is there. Written off the path of the answer, bounded in
 * memory and in the table: in the table the oldest go first.
 */
export function createQuarantine({ db, dropped, maxRows, maxBytes, wake }: QuarantineDeps): Quarantine {
  const rows = createWriteBehind<Refused>({
    write: (batch) => store(db, batch),
    rowsPerWrite: flushRows,
    maxWeight: maxWaitingBytes,
    weightOf: ({ body }) => body.length,
    dropped,
    wake,
  })
  return {
    record: rows.add,
    runOnce: async () => {
      const { written, more } = await rows.writeSome()
      if (written > 0) await trim(db, { maxRows, maxBytes })
      return { more }
    },
    waiting: rows.waiting,
  }
}

async function store(db: Database, batch: readonly Refused[]): Promise<void> {
  const column = <T>(pick: (refused: Refused) => T) => sql.param(batch.map(pick))
  await db.execute(sql`
    insert into mediadock.quarantine (arrived_at, reason, webhook_id, headers, body)
    select arrived_at, reason, webhook_id, headers::jsonb, decode(body, 'hex') from unnest(
      ${column((r) => r.arrivedAt.toISOString())}::text[]::timestamptz[], ${column((r) => r.reason)}::text[],
      ${column((r) => r.webhookId ?? null)}::text[], ${column((r) => JSON.stringify(r.headers))}::text[], ${column((r) => r.body.toString('hex'))}::text[]
    ) as r (arrived_at, reason, webhook_id, headers, body)`)
}

/** Bytes are those of bodies and headers, as they were sent. */
async function trim(db: Database, { maxRows, maxBytes }: { maxRows: number; maxBytes: number }): Promise<void> {
  await db.execute(sql`
    delete from mediadock.quarantine where id in (
      select id from (
        select id, row_number() over newest as place,
               sum(octet_length(body) + octet_length(headers::text)) over newest as bytes
        from mediadock.quarantine window newest as (order by arrived_at desc, id desc)
      ) kept
      where place > ${maxRows} or bytes > ${maxBytes})`)
}

export type VerifyDeps = { db: Database; keys: () => Keys; onStored: (lanes: ReadonlySet<Delivery['lane']>) => void }

export type VerifyOptions = {
  /** Only what was refused for this reason. */
  reason?: string | undefined
  onAccepted?: (deliveryIds: readonly string[]) => void
}

export type Verified = { checked: number; accepted: number; refused: number }

/**
 * Verifies everything in the quarantine again, with today's secrets and the
 * window judged against the time of arrival, and accepts what is authentic. An
 * arrival without a usable id is no delivery and stays.
 */
export async function verifyQuarantine({ db, keys, onStored }: VerifyDeps, { reason, onAccepted }: VerifyOptions = {}): Promise<Verified> {
  const verified: Verified = { checked: 0, accepted: 0, refused: 0 }
  let after = 0
  for (;;) {
    const rows = await nextRows(db, { after, reason })
    if (rows.length === 0) return verified
    after = rows.at(-1)?.id ?? after
    const authentic = rows.flatMap((row) => {
      const delivery = authenticate(row, keys())
      return delivery ? [{ id: row.id, delivery }] : []
    })
    // One row for each key: the same delivery may have been refused six times.
    const deliveries = [...new Map(authentic.map(({ delivery }) => [delivery.id, delivery])).values()]
    if (authentic.length > 0) {
      await noteKeyUses(db, authentic.map(({ delivery: { keyName, receivedAt: at } }) => ({ keyName, at, matches: 1 })))
      await storeDeliveries(
        db,
        deliveries.toSorted((a, b) => (a.id < b.id ? -1 : 1)),
        authentic.map(({ id }) => id),
      )
      onStored(new Set(deliveries.map(({ lane }) => lane)))
      onAccepted?.(deliveries.map(({ id }) => id))
    }
    verified.checked += rows.length
    verified.accepted += authentic.length
    verified.refused += rows.length - authentic.length
  }
}

/** A refused arrival as it lies in the quarantine. */
export type Kept = { id: number; arrivedAt: Date; reason: string; webhookId: string | undefined; headers: Record<string, string>; body: Buffer }
export type KeptRow = { id: string; arrived_at: string; reason: string; webhook_id: string | null; headers: Record<string, string>; body: Buffer }

export function toKept({ id, arrived_at, webhook_id, ...row }: KeptRow): Kept {
  return { ...row, id: Number(id), arrivedAt: new Date(arrived_at), webhookId: webhook_id ?? undefined }
}

async function nextRows(db: Database, { after, reason }: { after: number; reason: string | undefined }): Promise<Kept[]> {
  const rows = await db.execute<KeptRow>(sql`
    select id, arrived_at, reason, webhook_id, headers, body from mediadock.quarantine
    where id > ${after} and ${reason === undefined ? sql`true` : sql`reason = ${reason}`} order by id limit ${flushRows}`)
  return rows.map(toKept)
}

/** The delivery that it is with today's secrets; undefined while it is not authentic. */
export function authenticate({ arrivedAt, webhookId, headers, body }: Kept, { secrets }: Keys): Delivery | undefined {
  const signature = headers['x-service-signature']
  if (signature === undefined || webhookId === undefined || !webhookIdPattern.test(webhookId)) return undefined
  const verification = verify(body, signature, secrets, Math.floor(arrivedAt.getTime() / 1000))
  if (!verification.ok) return undefined
  const kept = { ...headers, 'x-service-signature': '[redacted]' }
  return toDelivery({ id: deliveryId(webhookId, body), webhookId, body, headers: kept, receivedAt: arrivedAt, ...verification })
}
