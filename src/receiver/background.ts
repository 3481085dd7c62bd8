import cron from 'node-cron'
import { startLoop, type Loop } from '../runtime/loop.ts'
import { withDeadline } from '../runtime/postgres.ts'
import { ensurePartitions, type ArrivalLog } from './arrival-log.ts'
import type { ReceiverMetrics } from './metrics.ts'
import type { Quarantine } from './quarantine.ts'
import type { Pressure } from './pressure.ts'
import * as reconciler from './reconciler.ts'
import type { ReceiverSettings } from './settings.ts'
import { pruneOnce } from './retention.ts'
import type { Submitter } from './submit.ts'
import * as worker from './worker.ts'

export type Role = 'direct' | 'fetch' | 'arrivals' | 'quarantine' | 'submits'

export type Background = {
  wake: (role: Role) => void
  reconcileNow: (requestId?: string) => Promise<reconciler.ReconcileRun | undefined>
  /** After the signal: lets every round end, and writes what the logs still hold. */
  drain: () => Promise<void>
}

export type BackgroundDeps = {
  settings: ReceiverSettings
  landing: worker.WorkerDeps
  submitter: Submitter
  metrics: ReceiverMetrics
  arrivalLog: ArrivalLog
  pressure: Pressure
  quarantine: Quarantine
  /** No new round after this. */
  signal: AbortSignal
}

/** A lane looks again by itself this often: for retries, and for what another replica accepted and lost. */
const pollMs = 1000
const drainDeadlineMs = 3000
/** Ticks do not overlap, so a run that never ended would be the last one. */
const runDeadlineMs = 600_000

/** Starts every background role: two lanes of landing, the two logs, the reconciler and the making of partitions. */
export function startBackground(deps: BackgroundDeps): Background {
  const { settings, landing, metrics, pressure, signal } = deps
  const { db, clock, logger } = landing
  const { stuckAfterSeconds, fetchRatePerMinute } = settings
  const reconcilerDeps = { ...landing, stuckAfterSeconds, fetchRatePerMinute }

  const lane = (name: 'direct' | 'fetch') =>
    startLoop({ name: `landing-${name}`, runOnce: () => pressure.paced(() => worker.runOnce(landing, name), signal), idleMs: pollMs, logger, signal })
  const loops: Record<Role, Loop> = {
    direct: lane('direct'),
    fetch: lane('fetch'),
    arrivals: startLoop({ name: 'arrival-log', runOnce: () => pressure.paced(deps.arrivalLog.runOnce, signal), idleMs: pollMs, logger, signal }),
    quarantine: startLoop({ name: 'quarantine', runOnce: deps.quarantine.runOnce, idleMs: pollMs, logger, signal }),
    submits: startLoop({ name: 'submits', runOnce: deps.submitter.runOnce, idleMs: pollMs, logger, signal }),
  }

  const reconcile = async () => {
    const started = performance.now()
    try {
      const run = await withDeadline(reconciler.runOnce(reconcilerDeps, signal), runDeadlineMs, 'a reconcile run')
      metrics.reconcileRuns.inc({ outcome: 'ok' })
      if (run.scanned > 0) logger.info({ ...run, ms: Math.round(performance.now() - started) }, 'reconcile run ended')
    } catch (error) {
      metrics.reconcileRuns.inc({ outcome: 'error' })
      logger.error({ err: error }, 'reconcile run failed, the next tick tries again')
    }
  }
  let running: Promise<void> = Promise.resolve()
  const tasks = [
    cron.schedule(settings.reconcileCron, () => (running = reconcile()), { noOverlap: true }),
    cron.schedule('11 * * * *', async () => {
      await ensurePartitions(db, clock()).catch((error: unknown) => logger.error({ err: error }, 'making partitions failed'))
    }),
  ]
  const prune = async () => {
    await pruneOnce({ db, retentionDays: settings.retentionDays, clock, logger }, signal).catch((error: unknown) =>
      logger.error({ err: error }, 'pruning failed, the next run tries again'),
    )
  }
  let pruning: Promise<void> = Promise.resolve()
  tasks.push(cron.schedule(settings.retentionCron, () => (pruning = prune()), { noOverlap: true }))
  signal.addEventListener('abort', () => tasks.forEach((task) => void task.stop()), { once: true })

  return {
    wake: (role) => loops[role].wake(),
    reconcileNow: (requestId) =>
      requestId === undefined ? reconciler.runOnce(reconcilerDeps, signal) : reconciler.reconcileOne(reconcilerDeps, requestId),
    drain: async () => {
      await Promise.all([...Object.values(loops).map(({ done }) => done), running, pruning])
      const rest = drainLogs(deps)
      await withDeadline(rest, drainDeadlineMs, 'writing the last of the arrival log').catch((error: unknown) => {
        logger.warn({ err: error, arrivals: deps.arrivalLog.waiting(), quarantine: deps.quarantine.waiting() }, 'some arrivals stay unlogged')
      })
    },
  }
}

async function drainLogs({ arrivalLog, quarantine }: BackgroundDeps): Promise<void> {
  while ((await arrivalLog.runOnce()).more);
  while ((await quarantine.runOnce()).more);
}
