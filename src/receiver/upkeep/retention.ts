import type { Logger } from '../../platform/logger.ts'
import { statementRows } from '../../platform/postgres/at-most.ts'
import { type Column, sql, type SQL, type Table } from '../../platform/postgres/drizzle.ts'
import { faultOf, one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { readTime, type SharedTime } from '../../platform/postgres/time.ts'
import * as arriving from '../domain/arrivals-schema.ts'
import * as onCall from '../domain/on-call-schema.ts'
import { unreadableReasons } from '../domain/report.ts'
import { attempts } from '../domain/schema.ts'
import { dropDaysBefore } from './arrival-partitions.ts'

export type RetentionDeps = {
  db: Database
  retentionDays: number
  /** Retention of the slices: each deletes rows by its own setting and returns their number. */
  prunes?: readonly { name: string; prune: (at: { now: Date; signal: AbortSignal }) => Promise<number> }[]
  clock: () => Date
  logger: Logger
}

type Pruned = Record<string, number>

/**
 * Deletes rows older than RETENTION_DAYS: processed deliveries with their attempts, parked ones that could not be used
 * or were decided (pruneDeliveries), the quarantine, the feed, the on-call tables, and the arrival log by whole days.
 * Pending deliveries, the other parked ones, and all results stay. Slices delete by their own settings.
 */
export async function pruneOnce(deps: RetentionDeps, signal: AbortSignal): Promise<Pruned> {
  const now = deps.clock()
  const cutoff = keptFrom(now, deps.retentionDays)
  const { db, prunes = [] } = deps
  const refused: unknown[] = []
  /** Runs a deletion. If Postgres refuses it, perhaps for a foreign key of a service, the others still run. */
  const apart = async (prune: () => Promise<number>): Promise<number> => {
    try {
      return await prune()
    } catch (error) {
      if (faultOf(error) === 'server') throw error
      refused.push(error)
      return 0
    }
  }
  const all = (prune: () => Promise<number>) => apart(() => inBatches(prune, signal))
  const aged = (rows: Aged) => all(() => pruneRows(db, rows, cutoff))
  const pruned: Pruned = { partitions: await apart(() => dropDays(deps, cutoff, signal)) }
  // Days of the arrival log without a partition.
  await aged({ table: sql`mediadock.arrivals_other`, at: sql`arrived_at` })
  pruned['deliveries'] = await all(() => pruneDeliveries(db, cutoff))
  await all(() => pruneInbox(db))
  pruned['quarantined'] = await aged({ table: arriving.quarantine, at: arriving.quarantine.arrived_at })
  pruned['changes'] = await all(() => pruneFeed(db, cutoff))
  pruned['notes'] = 0
  for (const rows of notes) pruned['notes'] += await aged(rows)
  for (const { name, prune } of prunes) pruned[name] = await apart(() => prune({ now, signal }))
  if (Object.values(pruned).some((rows) => rows > 0))
    deps.logger.info({ ...pruned, cutoff: cutoff.toISOString() }, 'old rows pruned')
  if (refused.length > 0) throw refused[0]
  return pruned
}

async function dropDays({ db, logger }: RetentionDeps, cutoff: Date, signal: AbortSignal): Promise<number> {
  const days = await dropDaysBefore(db, cutoff, signal)
  if (days.left > 0)
    logger.warn(days, 'partitions of the arrival log are locked, perhaps by a dump: the next run tries to drop them')
  return days.dropped
}

/** Returns the earlier time of Postgres and this host, so that retention deletes nothing early if one is ahead. */
export async function pruningTime(db: Database, time: SharedTime, clock: () => Date): Promise<Date> {
  const theirs = await readTime(db, time)
  return new Date(Math.min(theirs.getTime(), clock().getTime()))
}

/** Returns the cutoff: older rows are deleted. */
export function keptFrom(now: Date, days: number): Date {
  return new Date(now.getTime() - days * 86_400_000)
}

async function inBatches(prune: () => Promise<number>, signal: AbortSignal): Promise<number> {
  let sum = 0
  while (!signal.aborted) {
    const rows = await prune()
    sum += rows
    if (rows < statementRows) break
  }
  return sum
}

/**
 * Deletes processed deliveries, those that could not be used (also for a missing source or archive), those of another
 * source, and those parked for their key once the provider's result is known. If parked ones were kept forever, the
 * holder of one signing secret could fill the disk.
 */
async function pruneDeliveries(db: Database, cutoff: Date): Promise<number> {
  const rows = await db.execute<{ n: number }>(sql`
    with old as (
      select d.id from mediadock.deliveries d
      where d.received_at < ${cutoff.toISOString()}::timestamptz
        and (d.parked_reason is null or d.parked_reason = any(${sql.param([...unreadableReasons])}::text[])
          or d.parked_reason = 'source_mismatch'
          or (d.parked_reason = 'key_mismatch' and exists (
            select from mediadock.requests r
            where r.request_id = d.request_id and r.confirmed_at is not null)))
        and not exists (select from mediadock.inbox where inbox.delivery_id = d.id)
      order by d.received_at nulls first limit ${statementRows}
    ),
    gone as (delete from mediadock.deliveries d using old where d.id = old.id returning d.id),
    attempts_gone as (delete from mediadock.attempts a using gone where a.delivery_id = gone.id)
    select count(*)::int as n from gone`)
  return one(rows, 'pruning deliveries').n
}

/** Deletes places in the inbox whose delivery was deleted while a replay put it back. Nothing else would. */
async function pruneInbox(db: Database): Promise<number> {
  const rows = await db.execute(sql`
    delete from mediadock.inbox where delivery_id = any(array(
      select i.delivery_id from mediadock.inbox i
      where (select 1 from mediadock.deliveries d where d.id = i.delivery_id limit 1) is null
      limit ${statementRows}))
    returning 1`)
  return rows.length
}

/** Deletes changes, and stores the last position. Readers before it get an error instead of a gap. */
async function pruneFeed(db: Database, cutoff: Date): Promise<number> {
  const rows = await db.execute<{ n: number }>(sql`
    with gone as (
      delete from mediadock.feed_entries where position = any(array(
        select position from mediadock.feed_entries where position < ${cutoff.getTime() * 1000}::bigint
        order by position limit ${statementRows}))
      returning position
    ),
    bounded as (
      update mediadock.feed_bounds set pruned_to = greatest(pruned_to, (select max(position) from gone))
      where exists (select from gone)
    )
    select count(*)::int as n from gone`)
  return one(rows, 'pruning the feed').n
}

type Aged = { table: SQL | Table; at: Column | SQL; only?: SQL }

/** The on-call tables to prune, with the column of their age. `key_uses` has one row per key, and stays. */
const notes: readonly Aged[] = [
  { table: onCall.audit, at: onCall.audit.at },
  { table: onCall.polls, at: onCall.polls.polled_at },
  { table: onCall.reconcileRuns, at: onCall.reconcileRuns.ended_at },
  { table: onCall.minutes, at: onCall.minutes.minute },
  // An open issue has no closed_at, so it stays.
  { table: onCall.issues, at: onCall.issues.closed_at },
  { table: onCall.replays, at: onCall.replays.started_at },
  { table: onCall.processStarts, at: onCall.processStarts.started_at },
  {
    table: attempts,
    at: attempts.attempted_at,
    // Landing deletes a discarded delivery without its attempts.
    only: sql`(select 1 from mediadock.deliveries d where d.id = attempts.delivery_id limit 1) is null`,
  },
]

async function pruneRows(db: Database, { table, at, only = sql`true` }: Aged, cutoff: Date): Promise<number> {
  const rows = await db.execute(sql`
    delete from ${table} where ctid = any(array(
      select ctid from ${table} where ${at} < ${cutoff.toISOString()}::timestamptz and ${only} limit ${statementRows}))
    returning 1`)
  return rows.length
}
