import type { Counter, Histogram } from 'prom-client'
import { createShares } from '../../platform/fair-share.ts'
import type { LogNote } from '../../platform/http/request-log.ts'
import { senderOf } from '../../platform/http/sender.ts'
import { createTokens } from '../../platform/line-budget.ts'
import type { Logger } from '../../platform/logger.ts'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { notDurable } from '../../platform/postgres/durable.ts'
import { retryConflicts } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { executePrepared } from '../../platform/postgres/prepared.ts'
import { createWriteBehind } from '../../platform/write-behind.ts'
import * as arriving from '../domain/arrivals-schema.ts'
import * as onCall from '../domain/on-call-schema.ts'
import { sourceLabel } from '../domain/source.ts'
import { loggedTraceId } from '../domain/trace.ts'
import type { Acceptance } from './webhook-answers.ts'

const { id: _generated, ...logged } = columnsOf(arriving.arrivals)
const columns = sql.join(Object.values(logged), sql`, `)

const keyUses = columnsOf(onCall.keyUses)
const u = columnsOf(onCall.keyUses, 'u')
const s = columnsOf(arriving.knownSenders, 's')
const knownSenders = columnsOf(arriving.knownSenders)

const maxWaitingRows = 50_000
/** Refused arrivals with a row of their own: bounded, so that a forger cannot fill the disk. */
const refusedBurst = 1000
const refusedPerSecond = 100
/** The limit per day. At the pace above the log would otherwise grow by gigabytes. */
const refusedPerDay = 100_000
const foldMs = 60_000

/** One answered HTTP arrival, for the log, the metrics, the traces and the console. */
export type Arrival = {
  row: LogRow
  timestampMismatch: boolean
  /** The traceparent of an authentic arrival, as sent. */
  traceparent?: string | undefined
  /** When the body was complete, and when it was verified; in ms since the beginning, like `ack_ms`. */
  readMs?: number | undefined
  verifiedMs?: number | undefined
}

/** A row of the log, by the names of its columns. */
export type LogRow = {
  arrived_at: Date
  /** `hint`: an unsigned webhook. It is logged and may cause a poll, and is never stored as a delivery. */
  outcome: Acceptance | 'hint' | 'refused' | 'unavailable'
  reason?: string | undefined
  status: number
  webhook_id?: string | undefined
  delivery_id?: string | undefined
  request_id?: string | undefined
  /** Undefined if the arrival is not authentic, or was refused before its verification. */
  key_name?: string | undefined
  /** See storedName(). */
  source_name: string | null
  remote?: string | undefined
  bytes?: number | undefined
  skew_seconds?: number | undefined
  ack_ms: number
  folded: number
}

export type ArrivalLog = ReturnType<typeof createArrivalLog>

export type ArrivalLogDeps = {
  db: Database
  logger: Logger
  clock: () => Date
  metrics: ArrivalMetrics
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
 * one row for each cause and minute. The same statement counts uses of keys, and stores known senders.
 */
export function createArrivalLog(deps: ArrivalLogDeps) {
  const { logger, clock, metrics, wake } = deps
  const rows = createWriteBehind<LogRow>({
    write: (batch) => write(deps.db, batch),
    rowsPerWrite: 2000,
    room: createShares({ rows: maxWaitingRows, bytes: Infinity }, 1),
    dropped: metrics.logDropped,
    wake,
  })
  const mayHaveOwnRow = createRefusedBudget()
  const folds = new Map<string, LogRow>()

  const fold = (row: LogRow): void => {
    const minute = Math.floor(row.arrived_at.getTime() / foldMs)
    const of = `${minute} ${row.outcome} ${row.reason ?? ''} ${row.source_name ?? ''}`
    const anonymous = { webhook_id: undefined, delivery_id: undefined, remote: undefined }
    const shared = folds.get(of) ?? { ...row, ...anonymous, folded: -1 }
    shared.folded += 1
    folds.set(of, shared)
  }
  const unfoldUntil = (before: number): void => {
    for (const [of, row] of folds) {
      const { arrived_at: since, outcome, reason } = row
      if (since.getTime() >= before) continue
      folds.delete(of)
      rows.add(row)
      logger.info(
        { outcome, reason, since, left_out: 1 + row.folded },
        'too many webhooks without a verified signature: lines were left out',
      )
    }
  }

  return {
    /** Counts an arrival and records it. Returns false if it shares the row of its cause and minute. */
    record: (arrival: Arrival): boolean => {
      const { row } = arrival
      count(metrics, arrival)
      const isOwn = row.key_name !== undefined || mayHaveOwnRow(row.arrived_at)
      if (isOwn) rows.add(row)
      else fold(row)
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

function count(metrics: ArrivalMetrics, { row, timestampMismatch }: Arrival): void {
  const { outcome, reason = '', source_name, status, key_name, bytes, ack_ms } = row
  metrics.arrivals.inc({ outcome, reason, ...sourceLabel(source_name) })
  if (status === 200) metrics.ackSeconds.observe(ack_ms / 1000)
  if (timestampMismatch) metrics.timestampMismatches.inc()
  if (isStored(outcome) && key_name !== undefined) metrics.storedBytes.inc({ key_name }, bytes)
}

/** False for a duplicate: it may be a replay by a stranger who recorded a delivery. */
function isStored(outcome: LogRow['outcome']): boolean {
  return outcome === 'accepted' || outcome === 'parked'
}

/** Decides which refused arrivals get a row of their own: a burst, then a pace, within a number per day. */
export function createRefusedBudget(): (arrivedAt: Date) => boolean {
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

/** Writes rows of the log, with the uses of keys and the senders that they show. */
async function write(db: Database, rows: readonly LogRow[]): Promise<void> {
  const items = rows.map((row) => ({ ...row, sender: isStored(row.outcome) ? senderOf(row.remote) : undefined }))
  // Another replica may delete old senders meanwhile.
  await retryConflicts(() =>
    executePrepared(
      db,
      sql`
    with arrived as (
      select row.*, item ->> 'sender' as sender
      from jsonb_array_elements(${JSON.stringify(items)}::jsonb) as item,
        jsonb_populate_record(null::mediadock.arrivals, item) as row
      where ${notDurable}
    ),
    used as (${notingKeyUses(sql`
      select key_name, arrived_at as at, 1 + folded as matches from arrived where key_name is not null`)}),
    seen as (
      insert into mediadock.known_senders as s (${list(knownSenders, 'key_name', 'source', 'last_at')})
      select key_name, sender, max(arrived_at) from arrived where sender is not null group by key_name, sender
      -- At most once an hour, so that few rows are written.
      having not exists (select from mediadock.known_senders k where k.key_name = arrived.key_name
        and k.source = arrived.sender and k.last_at > max(arrived.arrived_at) - interval '1 hour')
      order by key_name, sender
      on conflict (key_name, source) do update set last_at = greatest(${s.last_at}, excluded.last_at)
    )
    insert into mediadock.arrivals (${columns}) select ${columns} from arrived`,
    ),
  )
}

/** Returns the line of an arrival for the process's log, with the ids that a person may search for. */
export function toLogLine({ row, traceparent }: Arrival, traces: object | undefined): LogNote {
  const { arrived_at: _arrivedAt, ack_ms, source_name, folded: _folded, ...fields } = row
  const { key_name, delivery_id: deliveryId } = row
  const isTraced = key_name !== undefined && deliveryId !== undefined
  const trace_id = isTraced ? loggedTraceId({ deliveryId, traceparent }, traces) : undefined
  const ms = Math.round(ack_ms * 10) / 10
  return { message: 'webhook answered', fields: { ...fields, ms, ...sourceLabel(source_name), trace_id } }
}

/** SQL: counts the uses of keys, given as rows of (key_name, at, matches). It can be part of a `with`. */
function notingKeyUses(uses: SQL): SQL {
  // Sorted by key, so that two writers cannot deadlock.
  return sql`
    insert into mediadock.key_uses as u (${list(keyUses, 'key_name', 'first_match_at', 'last_match_at', 'matches')})
    select key_name, min(at), max(at), sum(matches) from (${uses}) as uses group by key_name order by key_name
    on conflict (key_name) do update set matches = ${u.matches} + excluded.matches,
      first_match_at = least(${u.first_match_at}, excluded.first_match_at),
      last_match_at = greatest(${u.last_match_at}, excluded.last_match_at)`
}

/** Counts the uses of keys by deliveries that the log does not show as authentic. */
export async function noteKeyUses(db: Database, uses: readonly { keyName: string; receivedAt: Date }[]): Promise<void> {
  const names = sql.param(uses.map(({ keyName }) => keyName))
  const times = sql.param(uses.map(({ receivedAt }) => receivedAt.toISOString()))
  await db.execute(
    notingKeyUses(sql`
      select key_name, at::timestamptz, 1 as matches from unnest(${names}::text[], ${times}::text[]) as used (key_name, at)`),
  )
}
