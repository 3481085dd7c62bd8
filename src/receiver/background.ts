import cron from 'node-cron'
import { cronLogger } from '../platform/cron-logger.ts'
import { withDeadline } from '../platform/deadline.ts'
import { createStreak, startLoop, type FailingRole, type LoopOptions } from '../platform/loop.ts'
import { createGuessLimit } from '../platform/pages/guess-limit.ts'
import { readTime } from '../platform/postgres/time.ts'
import type { Parts, Role } from './assembly.ts'
import { createSequencer } from './feeding/sequencer.ts'
import { noteAccounts } from './fetching/accounts.ts'
import { startOnCallRoles, type OnCallRole } from './on-call/roles.ts'
import { readSpending } from './queries/spending.ts'
import { createPollKeeper } from './reconciling/poll-claims.ts'
import { createPoller, type Poller } from './reconciling/poller.ts'
import type { PollingDeps } from './reconciling/polling.ts'
import { runReported, silentAfterSeconds } from './reconciling/reconcile-runs.ts'
import * as reconciler from './reconciling/reconciler.ts'
import { createSetAside } from './reconciling/rests.ts'
import { pollMs, type RunningSlice } from './slice.ts'
import { createPartitionMaker } from './upkeep/arrival-partitions.ts'
import { noteStart, writeMinutes } from './upkeep/minutes.ts'
import { pruneOnce, pruningTime } from './upkeep/retention.ts'

export type Background = ReturnType<typeof startBackground>

export type BackgroundDeps = Parts & {
  /** The running slices. */
  running: readonly RunningSlice[]
  /** False only in tests: see ReceiverOptions. */
  followsUp: boolean
  asksForAccounts: boolean
  /** After it aborts, no round begins. */
  signal: AbortSignal
}

/** Under a steady load the logs gather rows, since a statement costs as much as many rows. */
const gatherRowsMs = 100
/** A landing wakes the poller. It gathers wakes for this long, since each round costs a statement. */
const gatherPollsMs = 20

/**
 * Starts every background role of the core (startRoles()), the on-call roles, and the schedules of the reconciler and
 * of retention.
 */
export function startBackground(deps: BackgroundDeps) {
  const { settings, db, clock, logger, prepared } = deps
  const after = prepared.done
  const guesses = createGuessLimit(clock)
  const polling = pollingDeps(deps)
  const poller = createPoller(polling)
  const watched = {
    /** The reconciler counts as silent after this long without a run; undefined if it runs too rarely to decide. */
    silentAfterSeconds: silentAfterSeconds(settings.reconcileCron),
    /** Wrong tokens given to the internal listener; an issue names their addresses. */
    guesses,
    /** The roles of this process whose last rounds failed. */
    failingRoles: () => failingRoles(),
  }
  const onCall = startOnCallRoles({ ...deps, background: watched, startedAt: clock(), after })
  const loops = new Map([...startRoles(deps, poller), ...Object.entries(onCall)])
  const schedules = startSchedules(deps, polling)
  const all = [...loops.values(), ...deps.running.map(({ loop }) => loop)]
  const failingRoles = (): FailingRole[] => [...all, schedules.retention].flatMap(({ failing }) => failing() ?? [])
  deps.metrics.watchRoles(failingRoles)
  deps.roles.wake = (role) => loops.get(role)?.wake()
  deps.roles.wakePoller = (keyName) => {
    if (!poller.isResting(keyName)) loops.get('poller')?.wake()
  }

  const begin = async () => {
    await after
    await noteStart(db, clock())
  }
  begin().catch((error: unknown) => logger.error({ err: error }, 'this start could not be recorded for the charts'))

  const rolesEnded = async () => {
    await Promise.all([...all.map(({ done }) => done), schedules.ended()])
    // After the loops, since a claim that is under way still adds deliveries.
    await deps.handOver.idle()
    await poller.idle()
    for (const { idle } of deps.running) await idle()
    await drainLogs(deps)
  }
  return {
    reconcileNow: schedules.reconcileNow,
    /** Polls one request; undefined when the request is not tracked or its row stays locked. */
    reconcileOne: (requestId: string) => reconciler.reconcileOne({ ...polling, db }, requestId),
    ...watched,
    nextRunAt: schedules.nextRunAt,
    /** After the signal: waits for every round to end, and writes buffered log rows. */
    drain: (graceMs: number): Promise<void> =>
      // Bounded, with time after the grace for the writes of calls that were cut. Leases end on their own.
      withDeadline(rolesEnded(), graceMs + 2000, 'ending the background roles').catch((error: unknown) =>
        logger.warn({ err: error }, 'stopping before every role has ended; other replicas or the next start take over'),
      ),
  }
}

function pollingDeps({ landingDeps, clock, pools, settings, fetcher, cut, awaited }: BackgroundDeps) {
  const { db } = pools.polls
  const { stuckAfterSeconds } = settings
  const setAside = createSetAside({ ...landingDeps, clock })
  const leases = createPollKeeper({ ...landingDeps, db })
  const waiting = { awaited: awaited.ids, setAside, leases }
  return { ...landingDeps, clock, db, ...waiting, fetchResult: fetcher, cut: cut.signal, stuckAfterSeconds }
}

/** Starts the roles of the core. They begin once the receiver is prepared and end with the signal. */
function startRoles(deps: BackgroundDeps, poller: Poller) {
  const { prepared, logger, signal } = deps
  const roles: Record<Exclude<Role, OnCallRole>, Pick<LoopOptions, 'runOnce' | 'idleMs' | 'gatherMs'>> = {
    ...landingRoles(deps),
    ...logRoles(deps),
    ...pollRoles(deps, poller),
  }
  return Object.entries(roles).map(
    ([name, role]) => [name, startLoop({ name, after: prepared.done, logger, signal, ...role })] as const,
  )
}

function landingRoles(deps: BackgroundDeps) {
  const { handOver, pressure, running, db, signal } = deps
  const onSequenced = () => running.forEach((slice) => slice.onSequenced?.())
  const sequencer = createSequencer({ db, onSequenced, signal })
  const claim = () => pressure.paced(handOver.claimSome, signal)
  return {
    inbox: { runOnce: claim, idleMs: pollMs },
    'inbox-leases': { runOnce: handOver.renewLeases, idleMs: pollMs },
    // A landing in this process wakes the feed. This interval serves every other change: landings of other processes,
    // refused submits, removed media, and values that join a landed result.
    feed: { runOnce: sequencer.runOnce, idleMs: 250 },
  }
}

function logRoles(deps: BackgroundDeps) {
  const { arrivalLog, pollLog, quarantine, pressure, settings, db, clock, time, logger, signal } = deps
  const writeArrivals = () => pressure.paced(arrivalLog.runOnce, signal, arrivalLog.isFilling)
  const writePolls = () => pressure.paced(pollLog.runOnce, signal)
  const minute = async () => {
    await writeMinutes(db, { now: await readTime(db, time), stuckAfterSeconds: settings.stuckAfterSeconds })
    return { more: false }
  }
  const writeMinute = () => pressure.paced(minute, signal)
  const makePartitions = createPartitionMaker({ db, clock, logger })
  return {
    'arrival-log': { runOnce: writeArrivals, idleMs: pollMs, gatherMs: gatherRowsMs },
    'poll-log': { runOnce: writePolls, idleMs: pollMs, gatherMs: gatherRowsMs },
    quarantine: { runOnce: quarantine.runOnce, idleMs: pollMs },
    minutes: { runOnce: writeMinute, idleMs: 20_000 },
    'arrival-partitions': { runOnce: makePartitions, idleMs: 10_000 },
  }
}

function pollRoles(deps: BackgroundDeps, poller: Poller) {
  const { handOver, pressure, submitter, followsUp, unsignedHints, keySets, signal } = deps
  const { db, keys, time } = deps
  const { fetchRatePerAccount: limitPerMinute } = deps.settings
  const asking = { db, keys, time, readSpending, reads: deps.sourceReads, limitPerMinute, asked: new Map() }
  const accounts = async () => (deps.asksForAccounts ? noteAccounts(asking) : { more: false })
  // New results have priority over completing older ones.
  const pollDue = async () => {
    await unsignedHints.runOnce()
    if (!followsUp || handOver.isBehind()) return { more: false }
    return pressure.paced(poller.runOnce, signal)
  }
  return {
    'key-sets': { runOnce: () => keySets.runOnce(keys()), idleMs: 5000 },
    accounts: { runOnce: accounts, idleMs: 60_000 },
    submits: { runOnce: submitter.runOnce, idleMs: pollMs },
    poller: { runOnce: pollDue, idleMs: pollMs, gatherMs: gatherPollsMs },
  }
}

/** Starts the jobs of RECONCILE_CRON and RETENTION_CRON. A tick before the receiver is prepared does nothing. */
function startSchedules(deps: BackgroundDeps, polling: PollingDeps) {
  const { settings, metrics, prepared, logger, signal } = deps
  const options = { noOverlap: true, logger: cronLogger(logger) }
  const reconcile = (trigger: 'cron' | 'manual') =>
    runReported({ ...polling, runs: metrics.reconcileRuns }, trigger, signal)
  let manual: ReturnType<typeof reconcile> | undefined
  let running: Promise<unknown> = Promise.resolve()
  // runReported has logged the failure.
  const tick = () => (prepared.isDone() ? reconcile('cron').catch(() => {}) : Promise.resolve())
  const ticks = cron.schedule(settings.reconcileCron, () => (running = tick()), options)

  const retention = createStreak('retention')
  let pruning: Promise<void> = Promise.resolve()
  const prune = () => (prepared.isDone() ? pruneAll(deps, retention) : Promise.resolve())
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
  { settings, db, time, clock, logger, slices, signal }: BackgroundDeps,
  retention: ReturnType<typeof createStreak>,
) {
  const prunes = slices.flatMap(({ name, prune }) =>
    prune ? [{ name, prune: (at: { now: Date; signal: AbortSignal }) => prune({ db, settings, ...at }) }] : [],
  )
  const pruneNow = async () => {
    const now = await pruningTime(db, time, clock)
    await pruneOnce({ db, retentionDays: settings.retentionDays, prunes, clock: () => now, logger }, signal)
  }
  await pruneNow().then(retention.succeeded, (error: unknown) => {
    retention.failed(error)
    logger.error({ err: error }, 'pruning failed, the next run tries again')
  })
}

/** Writes the buffered rows of the arrival log, the poll log and the quarantine, within a deadline. */
async function drainLogs(deps: BackgroundDeps): Promise<void> {
  const { arrivalLog, pollLog, quarantine, prepared, logger } = deps
  const waiting = () => ({ arrivals: arrivalLog.waiting(), polls: pollLog.waiting(), quarantine: quarantine.waiting() })
  // Without a connection to Postgres since the start, and without rows, there is nothing to write.
  if (!prepared.isDone() && Object.values(waiting()).every((rows) => rows === 0)) return
  const write = async () => {
    arrivalLog.unfold()
    for (const log of [arrivalLog, pollLog]) while (log.waiting() > 0) await log.runOnce()
    while ((await quarantine.runOnce()).more);
  }
  await withDeadline(write(), 3000, 'writing the last buffered rows').catch((error: unknown) =>
    logger.warn(
      { err: error, ...waiting() },
      'stopping: the last rows of the arrival log, the poll log or the quarantine were not written',
    ),
  )
}
