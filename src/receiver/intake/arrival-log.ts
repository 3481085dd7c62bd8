import type { Counter, Histogram } from 'prom-client'
import { createShares } from '../../platform/fair-share.ts'
import type { LogNote } from '../../platform/http/request-log.ts'
import { createTokens } from '../../platform/line-budget.ts'
import type { Logger } from '../../platform/logger.ts'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { executePrepared } from '../../platform/postgres/prepared.ts'
import { createWriteBehind } from '../../platform/write-behind.ts'
import * as arriving from '../domain/arrivals-schema.ts'
import { maxInteger } from '../domain/limits.ts'
import * as onCall from '../domain/on-call-schema.ts'
import { sourceLabel } from '../domain/source.ts'
import { loggedTraceId } from '../domain/trace.ts'
import type { Quarantine } from './quarantine.ts'
import type { Acceptance } from './webhook-answers.ts'

const { id: _generated, ...logged } = columnsOf(arriving.arrivals)
const columns = sql.join(Object.values(logged), sql`, `)

const keyUses = columnsOf(onCall.keyUses)
const u = columnsOf(onCall.keyUses, 'u')

const maxWaitingRows = 50_000
/** Refused arrivals with a row of their own: bounded, so that a forger cannot fill the disk. */
const refusedBurst = 1000
const refusedPerSecond = 100
/** The limit per day. At the pace above the log would otherwise grow by gigabytes. */
const refusedPerDay = 100_000
const foldMs = 60_000

/** The facts of one answered HTTP arrival, for the log, the metrics and the console. */
export type Arrival = {
  arrivedAt: Date
  /** `hint`: an unsigned webhook. It is logged and may cause a poll, and is never stored as a delivery. */
  outcome: Acceptance | 'hint' | 'refused' | 'unavailable'
  reason?: string | undefined
  status: number
  webhookId?: string | undefined
  deliveryId?: string | undefined
  requestId?: string | undefined
  /** Undefined if the arrival is not authentic, or was refused before its verification. */
  keyName?: string | undefined
  /** See storedName(). */
  sourceName: string | null
  remote?: string | undefined
  bytes?: number | undefined
  skewSeconds?: number | undefined
  timestampMismatch: boolean
  /** The traceparent of an authentic arrival, as sent. */
  traceparent?: string | undefined
  /** When the body was complete, and when it was verified; in ms since the beginning, like `ackMs`. */
  readMs?: number | undefined
  verifiedMs?: number | undefined
  ackMs: number
}

type Row = { arrival: Arrival; folded: number }

export type ArrivalLog = ReturnType<typeof createArrivalLog>

export type ArrivalLogDeps = {
  db: Database
  logger: Logger
  clock: () => Date
  metrics: ArrivalMetrics
  /** Records the sender of an authentic delivery. */
  noteSender: Quarantine['noteSender']
  wake: () => void
}

type ArrivalMetrics = {
  arrivals: Counter<'outcome' | 'reason' | 'source_name'>
  ackSeconds: Histogram
  timestampMismatches: Counter
  storedBytes: Counter<'key_name'>
  logDropped: Counter
}

/**
 * Creates the log of HTTP arrivals. It is written in batches after the answers. It is bounded: during an outage of
 * Postgres it keeps the first 50,000 rows. Refused arrivals beyond a pace, and beyond a number per day, are folded into
 * one row for each cause and minute.
 */
export function createArrivalLog(deps: ArrivalLogDeps) {
  const { logger, clock, metrics, wake } = deps
  const rows = createWriteBehind<Row>({
    write: (batch) => write(deps, batch),
    rowsPerWrite: 2000,
    room: createShares({ rows: maxWaitingRows, bytes: Infinity }, 1),
    dropped: metrics.logDropped,
    wake,
  })
  const mayHaveOwnRow = createRefusedBudget()
  const folds = new Map<string, Row>()

  const fold = (arrival: Arrival): void => {
    const minute = Math.floor(arrival.arrivedAt.getTime() / foldMs)
    const of = `${minute} ${arrival.outcome} ${arrival.reason ?? ''} ${arrival.sourceName ?? ''}`
    const row = folds.get(of)
    if (row) row.folded += 1
    else
      folds.set(of, {
        arrival: { ...arrival, webhookId: undefined, deliveryId: undefined, remote: undefined },
        folded: 0,
      })
  }
  const unfoldUntil = (before: number): void => {
    for (const [of, row] of folds) {
      const { arrivedAt, outcome, reason } = row.arrival
      if (arrivedAt.getTime() >= before) continue
      folds.delete(of)
      rows.add(row)
      logger.info(
        { outcome, reason, since: arrivedAt, left_out: 1 + row.folded },
        'too many webhooks without a verified signature: lines were left out',
      )
    }
  }

  return {
    /** Counts an arrival and records it. Returns false if it shares the row of its cause and minute. */
    record: (arrival: Arrival): boolean => {
      count(metrics, arrival)
      const isOwn = arrival.keyName !== undefined || mayHaveOwnRow(arrival.arrivedAt)
      if (isOwn) rows.add({ arrival, folded: 0 })
      else fold(arrival)
      return isOwn
    },
    runOnce: (): Promise<{ more: boolean }> => {
      if (folds.size > 0) unfoldUntil(Math.floor(clock().getTime() / foldMs) * foldMs)
      return rows.writeSome()
    },
    /** Makes all folded rows ready to be written, for the stop of the process. */
    unfold: (): void => unfoldUntil(Infinity),
    waiting: rows.waiting,
    /** True if so many rows wait that a pause would lose rows. */
    isFilling: (): boolean => rows.waiting() > maxWaitingRows / 2,
  }
}

function count(metrics: ArrivalMetrics, { outcome, reason = '', sourceName, status, ...arrival }: Arrival): void {
  metrics.arrivals.inc({ outcome, reason, ...sourceLabel(sourceName) })
  if (status === 200) metrics.ackSeconds.observe(arrival.ackMs / 1000)
  if (arrival.timestampMismatch) metrics.timestampMismatches.inc()
}

/** Decides which refused arrivals get a row of their own: a burst, then a pace, within a number per day. */
function createRefusedBudget(): (arrivedAt: Date) => boolean {
  const mayTake = createTokens(refusedBurst, refusedPerSecond)
  let day = 0
  let leftToday = refusedPerDay

  return (arrivedAt) => {
    const now = arrivedAt.getTime()
    const today = Math.floor(now / 86_400_000)
    if (today !== day) [day, leftToday] = [today, refusedPerDay]
    if (leftToday < 1 || !mayTake(now)) return false
    leftToday -= 1
    return true
  }
}

async function write({ db, metrics, noteSender }: ArrivalLogDeps, rows: readonly Row[]): Promise<void> {
  const uses = rows.flatMap(({ arrival: { keyName, arrivedAt: at }, folded }) =>
    keyName === undefined ? [] : [{ keyName, at, matches: 1 + folded }],
  )
  await executePrepared(
    db,
    sql`
    with used as (${notingKeyUses(uses)})
    insert into mediadock.arrivals (${columns})
    select ${columns} from jsonb_populate_recordset(null::mediadock.arrivals, ${JSON.stringify(rows.map(toItem))}::jsonb)
    where set_config('synchronous_commit', 'off', true) = 'off'`,
  )
  for (const { arrival } of rows) {
    const { keyName, remote, arrivedAt: at, outcome, bytes = 0 } = arrival
    // A duplicate may be a replay by a stranger who recorded a delivery, so it makes no sender known.
    if (keyName === undefined || (outcome !== 'accepted' && outcome !== 'parked')) continue
    noteSender({ keyName, remote, at })
    metrics.storedBytes.inc({ key_name: keyName }, bytes)
  }
}

function toItem({ arrival, folded }: Row): Record<keyof typeof logged, unknown> {
  return {
    arrived_at: arrival.arrivedAt,
    outcome: arrival.outcome,
    reason: arrival.reason,
    status: arrival.status,
    webhook_id: arrival.webhookId,
    delivery_id: arrival.deliveryId,
    request_id: arrival.requestId,
    key_name: arrival.keyName,
    source_name: arrival.sourceName ?? undefined,
    remote: arrival.remote,
    bytes: arrival.bytes,
    skew_seconds: arrival.skewSeconds === undefined ? undefined : clampInt(arrival.skewSeconds),
    ack_ms: arrival.ackMs,
    folded,
  }
}

/** Limits the skew to the column's range. A forged time of 12 digits exceeds it. */
function clampInt(value: number): number {
  return Math.max(-maxInteger, Math.min(maxInteger, Math.round(value)))
}

/** Returns the line of an arrival for the process's log, with the ids that a person may search for. */
export function lineOf(arrival: Arrival, traces: object | undefined): LogNote {
  const { keyName, deliveryId, skewSeconds, traceparent } = arrival
  const isTraced = keyName !== undefined && deliveryId !== undefined
  const fields = {
    status: arrival.status,
    outcome: arrival.outcome,
    reason: arrival.reason,
    ms: Math.round(arrival.ackMs * 10) / 10,
    webhook_id: arrival.webhookId,
    delivery_id: deliveryId,
    request_id: arrival.requestId,
    key_name: keyName,
    ...sourceLabel(arrival.sourceName),
    remote: arrival.remote,
    bytes: arrival.bytes,
    skew_seconds: skewSeconds,
    trace_id: isTraced ? loggedTraceId({ deliveryId, traceparent }, traces) : undefined,
  }
  return { message: 'webhook answered', fields }
}

export type KeyUse = { keyName: string; at: Date; matches: number }

/** SQL: the statement that stores which keys matched, one row per key. It can be part of a `with`. */
export function notingKeyUses(uses: readonly KeyUse[]): SQL {
  // Sorted by key, so that two writers cannot deadlock.
  const keys = [...Map.groupBy(uses, ({ keyName }) => keyName)].sort(([a], [b]) => (a < b ? -1 : 1))
  const times = keys.map(([, some]) => some.map(({ at }) => at.getTime() / 1000))
  return sql`
    insert into mediadock.key_uses as u (${list(keyUses, 'key_name', 'first_match_at', 'last_match_at', 'matches')})
    select key_name, to_timestamp(first), to_timestamp(last), matches from unnest(
      ${sql.param(keys.map(([name]) => name))}::text[], ${sql.param(times.map((some) => Math.min(...some)))}::float8[],
      ${sql.param(times.map((some) => Math.max(...some)))}::float8[],
      ${sql.param(keys.map(([, some]) => some.reduce((sum, { matches }) => sum + matches, 0)))}::bigint[]
    ) as used (key_name, first, last, matches)
    on conflict (key_name) do update set matches = ${u.matches} + excluded.matches,
      first_match_at = least(${u.first_match_at}, excluded.first_match_at),
      last_match_at = greatest(${u.last_match_at}, excluded.last_match_at)`
}

export async function noteKeyUses(db: Database, uses: readonly KeyUse[]): Promise<void> {
  if (uses.length > 0) await db.execute(notingKeyUses(uses))
}
