import { sql } from 'drizzle-orm'
import type { Counter } from 'prom-client'
import type { Database } from '../runtime/postgres.ts'
import { notingKeyUses } from './on-call/key-uses.ts'
import type { Arrival } from './webhook.ts'
import { createWriteBehind } from './write-behind.ts'

const maxWaitingRows = 50_000
const flushRows = 2000
/** Refused arrivals that get a row of their own: a forger must not be able to fill the disk. */
const refusedBurst = 1000
const refusedPerSecond = 100

type Row = { arrival: Arrival; folded: number }

export type ArrivalLog = {
  record: (arrival: Arrival) => void
  runOnce: () => Promise<{ more: boolean }>
  waiting: () => number
  /** So much waits that resting would cost rows. */
  isFilling: () => boolean
}

export type ArrivalLogDeps = { db: Database; dropped: Counter; clock: () => Date; wake: () => void }

/**
 * The log of HTTP arrivals, written after the answer and off its path, in
 * batches. It is bounded: while Postgres is away it keeps the first 50,000
 * rows, and a flood of refused arrivals is folded into one row per cause.
 */
export function createArrivalLog({ db, dropped, clock, wake }: ArrivalLogDeps): ArrivalLog {
  const rows = createWriteBehind<Row>({ write: (batch) => write(db, batch), rowsPerWrite: flushRows, maxWeight: maxWaitingRows, dropped, wake })
  let tokens = refusedBurst
  let refilledAt = clock().getTime()

  const mayHaveOwnRow = ({ outcome, arrivedAt }: Arrival): boolean => {
    if (outcome !== 'refused') return true
    const now = arrivedAt.getTime()
    tokens = Math.min(refusedBurst, tokens + (Math.max(0, now - refilledAt) / 1000) * refusedPerSecond)
    refilledAt = now
    if (tokens < 1) return false
    tokens -= 1
    return true
  }

  const fold = (arrival: Arrival): void => {
    const like = rows.findLast((row) => row.arrival.outcome === arrival.outcome && row.arrival.reason === arrival.reason)
    if (like) like.folded += 1
    else rows.add({ arrival: { ...arrival, webhookId: undefined, deliveryId: undefined }, folded: 0 })
  }

  return {
    record: (arrival) => {
      if (mayHaveOwnRow(arrival)) rows.add({ arrival, folded: 0 })
      else fold(arrival)
    },
    runOnce: rows.writeSome,
    waiting: rows.waiting,
    isFilling: () => rows.waiting() > maxWaitingRows / 2,
  }
}

async function write(db: Database, rows: readonly Row[]): Promise<void> {
  const uses = rows.flatMap(({ arrival: { keyName, arrivedAt: at }, folded }) => (keyName === undefined ? [] : [{ keyName, at, matches: 1 + folded }]))
  await db.execute(sql`
    with used as (${notingKeyUses(uses)})
    insert into mediadock.arrivals (arrived_at, outcome, reason, status, webhook_id, delivery_id, request_id, key_name,
                                    remote, bytes, skew_seconds, ack_ms, folded)
    select * from jsonb_to_recordset(${JSON.stringify(rows.map(toItem))}::jsonb) as a (
      arrived_at timestamptz, outcome text, reason text, status smallint, webhook_id text, delivery_id uuid, request_id uuid, key_name text,
      remote text, bytes integer, skew_seconds integer, ack_ms real, folded integer)
    where set_config('synchronous_commit', 'off', true) = 'off'`)
}

function toItem({ arrival, folded }: Row): Record<string, unknown> {
  return {
    arrived_at: arrival.arrivedAt,
    outcome: arrival.outcome,
    reason: arrival.reason,
    status: arrival.status,
    webhook_id: arrival.webhookId,
    delivery_id: arrival.deliveryId,
    request_id: arrival.requestId,
    key_name: arrival.keyName,
    remote: arrival.remote,
    bytes: arrival.bytes,
    skew_seconds: arrival.skewSeconds === undefined ? undefined : clampInt(arrival.skewSeconds),
    ack_ms: arrival.ackMs,
    folded,
  }
}

/** A forged time of 12 digits is far outside the column. */
function clampInt(value: number): number {
  return Math.max(-2_147_483_648, Math.min(2_147_483_647, Math.round(value)))
}
