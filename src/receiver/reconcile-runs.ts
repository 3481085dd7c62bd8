import { sql } from 'drizzle-orm'
import type { Database } from '../runtime/postgres.ts'
import type { ReconcileRun } from './reconciler.ts'

export const runTriggers = ['cron', 'manual'] as const

export type EndedRun = {
  trigger: (typeof runTriggers)[number]
  startedAt: Date
  endedAt: Date
  /** What it did, as far as it came, or why it failed. */
  run: ReconcileRun | undefined
  error?: string | undefined
}

/**
 * Writes down a run, as one statement; answers the id of its row. Runs that
 * found nothing to do share the row of the run before, if that found nothing
 * either: a run every 30 s must not fill the table, and yet be seen.
 */
export async function recordRun(db: Database, { trigger, startedAt, endedAt, run, error }: EndedRun): Promise<number> {
  const idle = trigger === 'cron' && error === undefined && run?.scanned === 0
  const outcome = error !== undefined ? 'error' : idle ? 'idle' : 'ok'
  const [started, ended] = [startedAt, endedAt].map((at) => sql`${at.toISOString()}::timestamptz`)
  const [row] = await db.execute<{ id: string }>(sql`
    with counted as (
      update mediadock.reconcile_runs set idle_runs = idle_runs + 1, ended_at = greatest(ended_at, ${ended})
      where ${idle} and outcome = 'idle' and id = (select max(id) from mediadock.reconcile_runs)
      returning id
    ),
    written as (
      insert into mediadock.reconcile_runs
        (started_at, ended_at, trigger, outcome, idle_runs, scanned, landed, running, not_found, failed, postponed, rate_limited, error)
      select ${started}, ${ended}, ${trigger}, ${outcome}, ${idle ? 1 : 0}, ${run?.scanned ?? 0}, ${run?.landed ?? 0}, ${run?.running ?? 0},
        ${run?.notFound ?? 0}, ${run?.failed ?? 0}, ${run?.postponed ?? 0}, ${run?.rateLimited ?? 0}, ${error ?? null}
      where not exists (select from counted)
      returning id
    )
    select id from counted union all select id from written`)
  return Number(row?.id)
}
