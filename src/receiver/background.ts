import cron from 'node-cron'
import { cronLogger } from '../platform/cron-logger.ts'
import { withDeadline } from '../platform/deadline.ts'
import { createStreak, startLoop, type FailingRole, type Loop } from '../platform/loop.ts'
import { createGuessLimit, type GuessLimit } from '../platform/pages/guess-limit.ts'
import type { Database } from '../platform/postgres/postgres.ts'
import { comparedMs, type SharedClock } from '../platform/postgres/shared-clock.ts'
import type { ArchiverDeps } from './archive/archiver.ts'
import { startArchiving } from './archive/role.ts'
import { createSequencer } from './feeding/sequencer.ts'
import type { Fetcher } from './fetching/fetcher.ts'
import type { PollLog } from './fetching/poll-log.ts'
import type { ArrivalLog } from './intake/arrival-log.ts'
import type { Pressure } from './intake/pressure.ts'
import type { Quarantine } from './intake/quarantine.ts'
import { bringBackStrays } from './landing/inbox.ts'
import type { Lander } from './landing/lander.ts'
import type { WorkerDeps } from './landing/worker.ts'
import type { ReceiverMetrics } from './metrics.ts'
import { startOnCallRoles, type OnCallRole } from './on-call/roles.ts'
import type { Awaited } from './reconciling/awaited.ts'
import { createFollowUps } from './reconciling/follow-ups.ts'
import * as reconciler from './reconciling/reconciler.ts'
import { runReported } from './reconciling/reported-run.ts'
import { createSetAside } from './reconciling/set-aside.ts'
import { silentAfterSeconds } from './reconciling/silence.ts'
import type { ReceiverSettings } from './settings.ts'
import type { Submitter } from './submitting/submit.ts'
import { startSubscribing } from './subscriptions/role.ts'
import type { SubscriptionSenderDeps } from './subscriptions/sender.ts'
import { createPartitionMaker } from './upkeep/arrival-partitions.ts'
import { noteStart, writeMinutes } from './upkeep/minutes.ts'
import { pruneByBothClocks } from './upkeep/retention.ts'

export type Role =
  | 'inbox'
  | 'claims'
  | 'feed'
  | 'strays'
  | 'followUps'
  | 'arrivals'
  | 'polls'
  | 'quarantine'
  | 'submits'
  | 'minutes'
  | 'partitions'
  | 'clock'
  | 'archive'
  | 'subscriptions'
  | OnCallRole

export type Background = {
  wake: (role: Role) => void
  /** A whole run, now; answers what it did and the id of its row. */
  reconcileNow: () => Promise<{ id: number; run: reconciler.ReconcileRun }>
  /** Polls one request; undefined when nobody tracks it. */
  reconcileOne: (requestId: string) => Promise<reconciler.ReconcileRun | undefined>
  /** After this long without a run the reconciler counts as silent; undefined where it runs too seldom to tell. */
  silentAfterSeconds: number | undefined
  /** Wrong tokens given to the internal listener; an issue names their addresses. */
  guesses: GuessLimit
  /** When the next run begins on this replica. */
  nextRunAt: () => Date | undefined
  /** The roles of this process whose last rounds have failed. */
  failingRoles: () => FailingRole[]
  /** Whether its roles have begun: Postgres was reached, with the schema up to date. */
  isPrepared: () => boolean
  /** After the signal: lets every round end, and writes what the logs still hold. It ends soon after so long, whatever Postgres does. */
  drain: (graceMs: number) => Promise<void>
}

export type BackgroundDeps = {
  settings: ReceiverSettings
  landing: WorkerDeps
  lander: Lander
  /** Connections on which no statement reads a whole table. */
  landingDb: Database
  /** Asks the provider for results. */
  fetcher: Fetcher
  /** Cuts the calls in flight. */
  cut: AbortSignal
  submitter: Submitter
  metrics: ReceiverMetrics
  arrivalLog: ArrivalLog
  pollLog: PollLog
  pressure: Pressure
  quarantine: Quarantine
  awaited: Awaited
  /** Sets the clock right that all roles go by. */
  compareClocks: SharedClock['compare']
  onCopied: ArchiverDeps['onCopied']
  onPosted: SubscriptionSenderDeps['onPosted']
  /** Without it polls are made by the runs of the reconciler only. */
  followsUp: boolean
  /** How what is wrong is told outside. */
  fetch: typeof globalThis.fetch
  /** Postgres can be reached and the schema is up to date: nothing runs before. */
  prepared: Promise<void>
  /** No new round after this. */
  signal: AbortSignal
}

/** The inbox is looked at this often without a wake: for retries, and for deliveries of replicas that died. Claims are renewed as often. */
const pollMs = 1000
const drainDeadlineMs = 3000
/** What lands here wakes the feed; this is for what a service's own INSERT joined, and another process landed. */
const feedMs = 250
/** After the grace, for what the calls that were cut then leave to be written. */
const lastWritesMs = 2000
/** Under a load that stays: whoever watches the log does not notice it, and a statement for each few rows costs as much as the rows. */
const gatherArrivals = { ms: 100, burst: 50 }
/** A landing wakes them. Under a load that stays, a look each 50 ms finds as many as the quota allows, and costs Postgres little. */
const gatherFollowUps = { ms: 50, burst: 20 }
const minutesMs = 20_000
const straysMs = 5000
const partitionsMs = 10_000

/** Starts every background role: the inbox, the feed, the logs, the minutes, the reconciler with its follow-ups, the archive, the subscriptions and the making of partitions. */
export function startBackground(deps: BackgroundDeps): Background {
  const { settings, landing, lander, metrics, pressure, arrivalLog, cut, prepared: after, signal } = deps
  const { db, clock, logger } = landing
  const guesses = createGuessLimit(clock)
  const { stuckAfterSeconds, fetchRatePerMinute } = settings
  const common = { after, logger, signal }
  const setAside = createSetAside({ clock, logger })
  const reconcilerDeps = {
    ...landing,
    fetch: deps.fetcher,
    cut,
    stuckAfterSeconds,
    fetchRatePerMinute,
    awaited: deps.awaited.ids,
    setAside,
  }
  const followUps = createFollowUps(reconcilerDeps)

  const subscribing = startSubscribing({ settings, landing, pressure, cut, onPosted: deps.onPosted, after, signal })
  const sequencer = createSequencer({ db, onSequenced: subscribing.loop.wake, signal })
  const archiving = startArchiving({ settings, landing, pressure, onCopied: deps.onCopied, after, signal })

  const minute = async () => {
    await writeMinutes(db, { now: clock(), stuckAfterSeconds })
    return { more: false }
  }
  const loops: Record<Role, Loop> = {
    inbox: startLoop({
      name: 'inbox',
      runOnce: () => pressure.paced(lander.claimSome, signal),
      idleMs: pollMs,
      ...common,
    }),
    claims: startLoop({ name: 'claims', runOnce: lander.renewClaims, idleMs: pollMs, ...common }),
    feed: startLoop({ name: 'feed', runOnce: sequencer.runOnce, idleMs: feedMs, ...common }),
    strays: startLoop({ name: 'strays', runOnce: () => bringBackStrays(deps.landingDb), idleMs: straysMs, ...common }),
    arrivals: startLoop({
      name: 'arrival-log',
      runOnce: () => pressure.paced(arrivalLog.runOnce, signal, arrivalLog.isFilling),
      idleMs: pollMs,
      gather: gatherArrivals,
      ...common,
    }),
    polls: startLoop({
      name: 'poll-log',
      runOnce: () => pressure.paced(deps.pollLog.runOnce, signal),
      idleMs: pollMs,
      ...common,
    }),
    quarantine: startLoop({ name: 'quarantine', runOnce: deps.quarantine.runOnce, idleMs: pollMs, ...common }),
    submits: startLoop({ name: 'submits', runOnce: deps.submitter.runOnce, idleMs: pollMs, ...common }),
    followUps: startLoop({
      name: 'follow-ups',
      // What is new comes first.
      runOnce: async () =>
        deps.followsUp && !lander.isBehind() ? pressure.paced(followUps.runOnce, signal) : { more: false },
      idleMs: pollMs,
      gather: gatherFollowUps,
      ...common,
    }),
    partitions: startLoop({
      name: 'arrival-partitions',
      runOnce: createPartitionMaker({ db, clock, logger }),
      idleMs: partitionsMs,
      ...common,
    }),
    clock: startLoop({ name: 'clock', runOnce: deps.compareClocks, idleMs: comparedMs, ...common }),
    archive: archiving.loop,
    subscriptions: subscribing.loop,
    ...startOnCallRoles({
      settings,
      landing,
      guesses,
      fetch: deps.fetch,
      failingRoles: () => failingRoles(),
      after,
      signal,
    }),
    minutes: startLoop({
      name: 'minutes',
      runOnce: () => pressure.paced(minute, signal),
      idleMs: minutesMs,
      ...common,
    }),
  }

  const retention = createStreak('retention')
  const failingRoles = () => [...Object.values(loops), retention].flatMap(({ failing }) => failing() ?? [])
  metrics.watchRoles(failingRoles)

  const reconcile = (trigger: 'cron' | 'manual') =>
    runReported({ ...reconcilerDeps, runs: metrics.reconcileRuns }, trigger, signal)
  let isPrepared = false
  const tick = async () => {
    if (!isPrepared) return
    // It has logged its failure itself.
    await reconcile('cron').catch(() => {})
  }
  let manual: ReturnType<typeof reconcile> | undefined
  // Whoever starts one while another that was started by hand still runs gets that one.
  const reconcileNow = () =>
    (manual ??= reconcile('manual').finally(() => {
      manual = undefined
    }))
  let running: Promise<void> = Promise.resolve()
  const ticks = cron.schedule(settings.reconcileCron, () => (running = tick()), {
    noOverlap: true,
    logger: cronLogger(logger),
  })
  const prune = async () => {
    if (!isPrepared) return
    const { retentionDays, mediaArchive, mediaArchiveRetentionDays } = settings
    const kept = { retentionDays, archiveRetentionDays: mediaArchive && mediaArchiveRetentionDays }
    await pruneByBothClocks({ db, ...kept, clock, logger }, signal).then(retention.succeeded, (error: unknown) => {
      retention.failed(error)
      logger.error({ err: error }, 'pruning failed, the next run tries again')
    })
  }
  let pruning: Promise<void> = Promise.resolve()
  const prunes = cron.schedule(settings.retentionCron, () => (pruning = prune()), {
    noOverlap: true,
    logger: cronLogger(logger),
  })
  const begin = async () => {
    await after
    isPrepared = true
    await noteStart(db, clock())
  }
  begin().catch((error: unknown) => logger.error({ err: error }, 'this start will not be marked on the charts'))
  signal.addEventListener('abort', () => [ticks, prunes].forEach((task) => void task.stop()), { once: true })

  const drain = async () => {
    await Promise.all([...Object.values(loops).map(({ done }) => done), running, pruning, manual?.catch(() => {})])
    // After them: what the last round claims is held only once it has its rows.
    await lander.idle()
    await followUps.settled()
    await archiving.settled()
    await subscribing.settled()
    // Where Postgres was never reached and nothing waits, there is nothing to write.
    if (!isPrepared && [deps.arrivalLog, deps.pollLog, deps.quarantine].every((log) => log.waiting() === 0)) return
    await withDeadline(drainLogs(deps), drainDeadlineMs, 'writing the last of the arrival log').catch(
      (error: unknown) => {
        logger.warn(
          {
            err: error,
            arrivals: deps.arrivalLog.waiting(),
            polls: deps.pollLog.waiting(),
            quarantine: deps.quarantine.waiting(),
          },
          'some arrivals stay unlogged',
        )
      },
    )
  }
  return {
    wake: (role) => loops[role].wake(),
    reconcileNow,
    reconcileOne: (requestId) => reconciler.reconcileOne(reconcilerDeps, requestId),
    silentAfterSeconds: silentAfterSeconds(settings.reconcileCron),
    guesses,
    failingRoles,
    nextRunAt: () => ticks.getNextRun() ?? undefined,
    isPrepared: () => isPrepared,
    // A Postgres that says nothing would hold it for as long as it does: what is held is another's when its lease ends.
    drain: (graceMs) =>
      withDeadline(drain(), graceMs + lastWritesMs, 'ending what is under way').catch((error: unknown) =>
        logger.warn({ err: error }, 'stopping without it, other replicas or the next start go on with it'),
      ),
  }
}

async function drainLogs({ arrivalLog, pollLog, quarantine }: BackgroundDeps): Promise<void> {
  arrivalLog.unfold()
  for (const log of [arrivalLog, pollLog]) while (log.waiting() > 0) await log.runOnce()
  while ((await quarantine.runOnce()).more);
}
