import cron from 'node-cron'
import { cronLogger } from '../platform/cron-logger.ts'
import { withDeadline } from '../platform/deadline.ts'
import { createStreak, startLoop, type FailingRole, type Rounds } from '../platform/loop.ts'
import { createGuessLimit } from '../platform/pages/guess-limit.ts'
import { readTime } from '../platform/postgres/time.ts'
import { noteAccounts } from './accounts/accounts.ts'
import type { Parts, RoleName } from './assembly.ts'
import { createSequencer } from './feeding/sequencer.ts'
import { onCallRoles } from './on-call/watch.ts'
import { readSpending } from './queries/costs.ts'
import { createPollKeeper, createSetAside } from './reconciling/poll-claims.ts'
import { createPoller, type Poller } from './reconciling/poller.ts'
import type { PollingDeps } from './reconciling/polling.ts'
import { reconcileOne, runReported, silentAfterSeconds } from './reconciling/reconciler.ts'
import { pollMs, type RunningSlice } from './slice.ts'
import { createPartitionMaker } from './upkeep/arrival-partitions.ts'
import { noteStart, writeMinutes } from './upkeep/minutes.ts'
import { pruneOnce, pruningTime } from './upkeep/retention.ts'

export type Background = ReturnType<typeof startBackground>

export type BackgroundOptions = {
  /** False in tests that poll only by runs of the reconciler. */
  followsUp?: boolean
  /** False in tests that count calls: no key's account is asked for, so each key has only its own limit. */
  asksForAccounts?: boolean
}

/** Under a steady load the logs gather rows, since a statement costs as much as many rows. */
const gatherRowsMs = 100
/** A landing wakes the poller. It gathers wakes for this long, since each round costs a statement. */
const gatherPollsMs = 20

/**
 * Starts every background role of the core, and the schedules of the reconciler and of retention. The roles begin once
 * the receiver is prepared and end with its stop.
 */
export function startBackground(parts: Parts, running: readonly RunningSlice[], options: BackgroundOptions) {
  const { settings, db, keys, clock, time, fetch, logger, metrics, wakes, wake, lifetime } = parts.shared
  const { prepared: after, stopping } = lifetime
  const { signal } = stopping
  const polling = pollingDeps(parts)
  const poller = createPoller({ ...polling, resting: parts.polls.resting })
  const schedules = startSchedules(parts, polling)
  const watched = {
    /** The reconciler counts as silent after this long without a run; undefined if it runs too rarely to decide. */
    silentAfterSeconds: silentAfterSeconds(settings.reconcileCron),
    /** Wrong tokens given to the internal listener; an issue names their addresses. */
    guesses: createGuessLimit(clock),
    /** The roles of this process whose last rounds failed. */
    failingRoles: (): FailingRole[] => [...loops, schedules.retention].flatMap(({ failing }) => failing() ?? []),
  }
  const own = { settings, db, keys, clock, time, fetch, logger, startedAt: clock(), after, signal }
  const onCall = { ...own, slices: parts.slices, background: watched, wakeAlerts: () => wake('alerts') }
  const roles: Record<RoleName, Rounds> = {
    ...deliveryRoles(parts, running),
    ...logRoles(parts),
    ...callRoles(parts, poller, options),
    ...onCallRoles(onCall),
  }
  const ofCore = Object.entries(roles).map(([name, rounds]) => {
    const loop = startLoop({ name, after, logger, signal, ...rounds })
    wakes.on(name, loop.wake)
    return loop
  })
  const loops = [...ofCore, ...running.flatMap(({ loop }) => loop ?? [])]
  metrics.watchRoles(watched.failingRoles)

  after
    .then(() => noteStart(db, clock()))
    .catch((error: unknown) => logger.error({ err: error }, 'this start could not be recorded for the charts'))

  const rolesEnded = async () => {
    await Promise.all([...loops.map(({ done }) => done), schedules.ended()])
    // After the loops, since a claim that is under way still adds deliveries.
    await parts.landing.handOver.idle()
    await poller.idle()
    for (const { idle } of running) await idle()
    await drainLogs(parts)
  }
  return {
    reconcileNow: schedules.reconcileNow,
    /** Polls one request; undefined when the request is not tracked or its row stays locked. */
    reconcileOne: (requestId: string) => reconcileOne({ ...polling, db }, requestId),
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

function pollingDeps({ shared, landing, calls, polls }: Parts): PollingDeps {
  const { pools, keys, clock, time, logger, settings, lifetime } = shared
  const { stuckAfterSeconds, mediaHosts } = settings
  const common = { db: pools.polls.db, keys, clock, time, logger, stuckAfterSeconds, mediaHosts }
  return {
    ...common,
    awaited: polls.awaited.ids,
    setAside: createSetAside(common),
    keepLease: createPollKeeper(common),
    fetchResult: calls.fetchResult,
    onProcessed: landing.landingDeps.onProcessed,
    cut: lifetime.cut.signal,
  }
}

function deliveryRoles({ shared, landing }: Parts, running: readonly RunningSlice[]) {
  const { pressure, db, lifetime } = shared
  const { handOver } = landing
  const { signal } = lifetime.stopping
  const onSequenced = () => running.forEach((slice) => slice.onSequenced?.())
  const sequencer = createSequencer({ db, onSequenced, signal })
  return {
    inbox: { runOnce: () => pressure.paced(handOver.claimSome, signal), idleMs: pollMs },
    'inbox-leases': { runOnce: handOver.renewLeases, idleMs: pollMs },
    // A landing in this process wakes the feed. This interval serves every other change: landings of other processes,
    // refused submits, removed media, and values that join a landed result.
    feed: { runOnce: sequencer.runOnce, idleMs: 250 },
  }
}

function logRoles({ shared, calls, intake }: Parts) {
  const { pressure, settings, db, clock, time, logger, lifetime } = shared
  const { arrivalLog, quarantine } = intake
  const { signal } = lifetime.stopping
  const writeArrivals = () => pressure.paced(arrivalLog.runOnce, signal, arrivalLog.isFilling)
  const writePolls = () => pressure.paced(calls.pollLog.runOnce, signal)
  const writeMinute = async () => {
    await writeMinutes(db, { now: await readTime(db, time), stuckAfterSeconds: settings.stuckAfterSeconds })
    return { more: false }
  }
  const makePartitions = createPartitionMaker({ db, clock, logger })
  return {
    'arrival-log': { runOnce: writeArrivals, idleMs: pollMs, gatherMs: gatherRowsMs },
    'poll-log': { runOnce: writePolls, idleMs: pollMs, gatherMs: gatherRowsMs },
    quarantine: { runOnce: quarantine.runOnce, idleMs: pollMs },
    minutes: { runOnce: () => pressure.paced(writeMinute, signal), idleMs: 20_000 },
    'arrival-partitions': { runOnce: makePartitions, idleMs: 10_000 },
  }
}

function callRoles(
  { shared, landing, calls, polls }: Parts,
  poller: Poller,
  { followsUp = true, asksForAccounts = true }: BackgroundOptions,
) {
  const { pressure, settings, db, keys, keySets, time, lifetime } = shared
  const { fetchRatePerAccount: limitPerMinute } = settings
  const asking = { db, keys, time, readSpending, reads: calls.sourceReads, limitPerMinute, asked: new Map() }
  const askForAccounts = async () => (asksForAccounts ? noteAccounts(asking) : { more: false })
  // New results have priority over completing older ones.
  const pollDue = async () => {
    await polls.unsignedHints.runOnce()
    if (!followsUp || landing.handOver.isBehind()) return { more: false }
    return pressure.paced(poller.runOnce, lifetime.stopping.signal)
  }
  return {
    'key-sets': { runOnce: () => keySets.runOnce(keys()), idleMs: 5000 },
    accounts: { runOnce: askForAccounts, idleMs: 60_000 },
    submits: { runOnce: calls.submitter.runOnce, idleMs: pollMs },
    poller: { runOnce: pollDue, idleMs: pollMs, gatherMs: gatherPollsMs },
  }
}

/** Starts the jobs of RECONCILE_CRON and RETENTION_CRON. A tick before the receiver is prepared does nothing. */
function startSchedules(parts: Parts, polling: PollingDeps) {
  const { settings, metrics, logger, lifetime } = parts.shared
  const { signal } = lifetime.stopping
  const options = { noOverlap: true, logger: cronLogger(logger) }
  const reconcile = (trigger: 'cron' | 'manual') =>
    runReported({ ...polling, runs: metrics.reconcileRuns }, trigger, signal)
  let manual: ReturnType<typeof reconcile> | undefined
  let running: Promise<unknown> = Promise.resolve()
  // runReported has logged the failure.
  const tick = () => (lifetime.isPrepared() ? reconcile('cron').catch(() => {}) : Promise.resolve())
  const ticks = cron.schedule(settings.reconcileCron, () => (running = tick()), options)

  const retention = createStreak('retention')
  let pruning: Promise<void> = Promise.resolve()
  const prune = () => (lifetime.isPrepared() ? pruneAll(parts, retention) : Promise.resolve())
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

async function pruneAll({ shared, slices }: Parts, retention: ReturnType<typeof createStreak>) {
  const { settings, db, time, clock, logger, lifetime } = shared
  const { signal } = lifetime.stopping
  const prunes = slices.flatMap(({ name, prune }) =>
    prune ? [{ name, prune: (at: { now: Date; signal: AbortSignal }) => prune({ db, settings, ...at }) }] : [],
  )
  try {
    const now = await pruningTime(db, time, clock)
    await pruneOnce({ db, retentionDays: settings.retentionDays, prunes, clock: () => now, logger }, signal)
    retention.succeeded()
  } catch (error) {
    retention.failed(error)
    logger.error({ err: error }, 'pruning failed, the next run tries again')
  }
}

/** Writes the buffered rows of the arrival log, the poll log and the quarantine, within a deadline. */
async function drainLogs({ shared, calls, intake }: Parts): Promise<void> {
  const { logger, lifetime } = shared
  const { arrivalLog, quarantine } = intake
  const { pollLog } = calls
  const waiting = () => ({ arrivals: arrivalLog.waiting(), polls: pollLog.waiting(), quarantine: quarantine.waiting() })
  // Without a connection to Postgres since the start, and without rows, there is nothing to write.
  if (!lifetime.isPrepared() && Object.values(waiting()).every((rows) => rows === 0)) return
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
