import cron from 'node-cron'
import { cronLogger } from '../platform/cron-logger.ts'
import type { Logger } from '../platform/logger.ts'
import { createStreak } from '../platform/loop.ts'
import type { Database } from '../platform/postgres/postgres.ts'
import type { ReceiverMetrics } from './metrics.ts'
import { runReported } from './reconciling/reconcile-runs.ts'
import type { ReconcilerDeps } from './reconciling/reconciler.ts'
import type { ReceiverSettings } from './settings.ts'
import type { Slice } from './slice.ts'
import { pruneByBothClocks } from './upkeep/retention.ts'

export type SchedulesDeps = {
  settings: ReceiverSettings
  db: Database
  clock: () => Date
  logger: Logger
  polling: ReconcilerDeps
  slices: readonly Slice[]
  metrics: ReceiverMetrics
  isPrepared: () => boolean
  signal: AbortSignal
}

/** Starts the jobs of RECONCILE_CRON and RETENTION_CRON. A tick before the receiver is prepared does nothing. */
export function startSchedules(deps: SchedulesDeps) {
  const { settings, polling, metrics, logger, isPrepared, signal } = deps
  const options = { noOverlap: true, logger: cronLogger(logger) }
  const reconcile = (trigger: 'cron' | 'manual') =>
    runReported({ ...polling, runs: metrics.reconcileRuns }, trigger, signal)
  let manual: ReturnType<typeof reconcile> | undefined
  let running: Promise<unknown> = Promise.resolve()
  // runReported has logged the failure.
  const tick = () => (isPrepared() ? reconcile('cron').catch(() => {}) : Promise.resolve())
  const ticks = cron.schedule(settings.reconcileCron, () => (running = tick()), options)

  const retention = createStreak('retention')
  let pruning: Promise<void> = Promise.resolve()
  const prune = () => (isPrepared() ? pruneAll(deps, retention) : Promise.resolve())
  const prunes = cron.schedule(settings.retentionCron, () => (pruning = prune()), options)
  signal.addEventListener('abort', () => [ticks, prunes].forEach((task) => void task.stop()), { once: true })
  return {
    retention,
    nextRunAt: () => ticks.getNextRun() ?? undefined,
    /** Runs the reconciler now. Concurrent callers share one manual run. */
    reconcileNow: () =>
      (manual ??= reconcile('manual').finally(() => {
        manual = undefined
      })),
    /** Resolves when no run is under way. */
    ended: () => Promise.all([running, pruning, manual?.catch(() => {})]),
  }
}

async function pruneAll(
  { settings, db, clock, logger, slices, signal }: SchedulesDeps,
  retention: ReturnType<typeof createStreak>,
) {
  const prunes = slices.flatMap(({ name, prune }) =>
    prune ? [{ name, prune: (at: { now: Date; signal: AbortSignal }) => prune({ db, settings, ...at }) }] : [],
  )
  const deps = { db, retentionDays: settings.retentionDays, prunes, clock, logger }
  await pruneByBothClocks(deps, signal).then(retention.succeeded, (error: unknown) => {
    retention.failed(error)
    logger.error({ err: error }, 'pruning failed, the next run tries again')
  })
}
