import type { Counter } from 'prom-client'
import { withDeadline } from '../../platform/deadline.ts'
import { recorded, type RunTrigger } from './reconcile-runs.ts'
import * as reconciler from './reconciler.ts'

export type ReportedRunDeps = reconciler.ReconcilerDeps & { runs: Counter<'outcome'> }

/** Does a whole run, and counts, logs and stores it, also if it fails. Returns its counts and the id of its row. */
export async function runReported(
  { runs, ...deps }: ReportedRunDeps,
  trigger: RunTrigger,
  signal: AbortSignal,
): Promise<{ id: number; run: reconciler.ReconcileRun }> {
  const { logger } = deps
  const started = performance.now()
  const ms = () => Math.round(performance.now() - started)
  try {
    // Ticks do not overlap, so a run that never ended would block all later ones.
    const run = () => withDeadline(reconciler.runOnce(deps, signal), 600_000, 'a reconcile run')
    const ended = await recorded(deps, trigger, run)
    runs.inc({ outcome: 'ok' })
    const { notFound, rateLimited, ...counts } = ended.run
    logger.info(
      { run_id: ended.id, trigger, ...counts, not_found: notFound, rate_limited: rateLimited, ms: ms() },
      'reconcile run ended',
    )
    return ended
  } catch (error) {
    runs.inc({ outcome: 'error' })
    logger.error({ err: error, trigger, ms: ms() }, 'reconcile run failed, the next tick tries again')
    throw error
  }
}
