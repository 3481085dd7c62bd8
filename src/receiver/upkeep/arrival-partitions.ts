import { setTimeout as delay } from 'node:timers/promises'
import type { Logger } from '../../platform/logger.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'

export type Partitions = { made: number; missing: number }

/** Creates the partitions of today and of the week ahead, until one is locked. The next round continues. */
export async function ensurePartitions(db: Database, now: Date): Promise<Partitions> {
  // Today and seven days ahead: a dump holds its locks for less, so each partition exists before its day.
  const today = sql`${now.toISOString().slice(0, 10)}::date`
  const days = await db.execute<{ day: string }>(sql`
    select day::text from generate_series(0, 7) as ahead cross join lateral (select ${today} + ahead) as d (day)
    where to_regclass('mediadock.arrivals_' || to_char(day, 'YYYYMMDD')) is null order by day`)
  let made = 0
  for (const { day } of days) {
    const [row] = await db.execute<{ outcome: string }>(sql`select mediadock.make_arrival_day(${day}::date) as outcome`)
    if (row?.outcome === 'busy') return { made, missing: days.length - made }
    if (row?.outcome === 'made') made += 1
  }
  return { made, missing: 0 }
}

/** Creates the role that makes partitions. It logs the first of several rounds in a row that a lock blocks. */
export function createPartitionMaker({ db, clock, logger }: { db: Database; clock: () => Date; logger: Logger }) {
  let missing = 0
  return async (): Promise<{ more: boolean }> => {
    const before = missing
    const done = await ensurePartitions(db, clock())
    missing = done.missing
    if (missing > 0 && before === 0)
      logger.warn(
        done,
        'partitions of the arrival log wait for a lock, perhaps of a dump: trying again every few seconds, ' +
          'arrivals are logged meanwhile',
      )
    if (done.made > 0) logger.info(done, 'partitions of the arrival log created')
    return { more: false }
  }
}

/** Drops the partitions of days before the cutoff's day. A locked one and all later ones stay until the next run. */
export async function dropDaysBefore(
  db: Database,
  cutoff: Date,
  signal: AbortSignal,
): Promise<{ dropped: number; left: number }> {
  const lastKept = cutoff.toISOString().slice(0, 10).replaceAll('-', '')
  const days = await db.execute<{ day: string }>(sql`
    select right(relname, 8) as day from pg_inherits join pg_class on pg_class.oid = inhrelid
    where inhparent = 'mediadock.arrivals'::regclass
      and relname ~ '^arrivals_[0-9]{8}$' and relname < ${`arrivals_${lastKept}`}
    order by relname`)
  let dropped = 0
  for (const { day } of days) {
    const outcome = await dropDay(db, day, signal)
    if (outcome === 'busy') break
    dropped += outcome === 'dropped' ? 1 : 0
  }
  return { dropped, left: days.length - dropped }
}

/** Drops one partition in a few short tries, since other statements queue behind its exclusive lock. */
async function dropDay(db: Database, day: string, signal: AbortSignal): Promise<string> {
  for (let attempt = 1; ; attempt += 1) {
    const [row] = await db.execute<{ outcome: string }>(sql`select mediadock.drop_arrival_day(${day}::date) as outcome`)
    const outcome = row?.outcome ?? 'busy'
    // The next run of retention tries again.
    if (outcome !== 'busy' || attempt === 3 || signal.aborted) return outcome
    await delay(500 * (0.5 + Math.random()))
  }
}
