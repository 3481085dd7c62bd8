import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { desc, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { readTime, type SharedTime } from '../../platform/postgres/time.ts'
import { failureWords } from '../../platform/postgres/words.ts'
import * as onCall from '../domain/on-call-schema.ts'
import type { ReconcileRun } from './reconciler.ts'

const reconcileRuns = columnsOf(onCall.reconcileRuns)

/** The stored columns of a run, in the order of the insert. */
export const runColumns = [
  'started_at',
  'ended_at',
  'trigger',
  'outcome',
  'idle_runs',
  'scanned',
  'landed',
  'running',
  'not_found',
  'failed',
  'postponed',
  'rate_limited',
  'error',
] as const

export const runTriggers = ['cron', 'manual'] as const

export type RunTrigger = (typeof runTriggers)[number]

type EndedRun = {
  trigger: RunTrigger
  startedAt: Date
  endedAt: SQL
  /** The counts of the run; undefined if it failed. */
  run: ReconcileRun | undefined
  error?: string | undefined
}

/** Runs `work` and stores the run, also if it fails. Returns its counts and the id of its row. */
export async function recorded(
  { db, time }: { db: Database; time: SharedTime },
  trigger: RunTrigger,
  work: () => Promise<ReconcileRun>,
): Promise<{ id: number; run: ReconcileRun }> {
  const startedAt = await readTime(db, time)
  const ended = (end: Pick<EndedRun, 'run' | 'error'>) => recordRun(db, { trigger, startedAt, endedAt: time(), ...end })
  let run: ReconcileRun
  try {
    run = await work()
  } catch (error) {
    // If Postgres is unreachable, the failure cannot be stored.
    await ended({ run: undefined, error: failureWords(error) }).catch(() => {})
    throw error
  }
  return { id: await ended({ run }), run }
}

/**
 * Stores a run in one statement and returns the id of its row. Consecutive idle runs share one row, so that a run every
 * 30 s does not fill the table.
 */
async function recordRun(db: Database, { trigger, startedAt, endedAt, run, error }: EndedRun): Promise<number> {
  const idle = trigger === 'cron' && error === undefined && run?.scanned === 0
  const outcome = error !== undefined ? 'error' : idle ? 'idle' : 'ok'
  const rows = await db.execute<RowOf<typeof onCall.reconcileRuns, 'id'>>(sql`
    with counted as (
      update mediadock.reconcile_runs set ${reconcileRuns.idle_runs} = ${reconcileRuns.idle_runs} + 1,
        ${reconcileRuns.ended_at} = greatest(${reconcileRuns.ended_at}, ${endedAt})
      where ${idle} and ${reconcileRuns.outcome} = 'idle'
        and ${reconcileRuns.id} = (select max(${reconcileRuns.id}) from mediadock.reconcile_runs)
      returning ${reconcileRuns.id}
    ),
    written as (
      insert into mediadock.reconcile_runs
        (${list(reconcileRuns, ...runColumns)})
      select ${startedAt.toISOString()}::timestamptz, ${endedAt}, ${trigger}, ${outcome}, ${idle ? 1 : 0},
        ${run?.scanned ?? 0}, ${run?.landed ?? 0}, ${run?.running ?? 0},
        ${run?.notFound ?? 0}, ${run?.failed ?? 0}, ${run?.postponed ?? 0}, ${run?.rateLimited ?? 0}, ${error ?? null}
      where not exists (select from counted)
      returning id
    )
    select id from counted union all select id from written`)
  return Number(one(rows, 'storing a run of the reconciler').id)
}

/** Returns the end of the latest run on any replica, failed ones included; undefined before the first. */
export async function lastRunEndedAt(db: Database): Promise<Date | undefined> {
  const { id, ended_at } = onCall.reconcileRuns
  const [last] = await db.select({ ended_at }).from(onCall.reconcileRuns).orderBy(desc(id)).limit(1)
  return last && new Date(last.ended_at)
}
