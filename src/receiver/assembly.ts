import { EventEmitter } from 'node:events'
import type { Express } from 'express'
import { createApp } from '../platform/http/app.ts'
import type { Logger } from '../platform/logger.ts'
import { createRegistry } from '../platform/metrics.ts'
import { createPool } from '../platform/postgres/postgres.ts'
import { postgresTime, timeOf } from '../platform/postgres/time.ts'
import { createPressure } from '../platform/pressure.ts'
import { createSourceReads } from './accounts/source-reads.ts'
import type { Keys } from './domain/keys.ts'
import { sourceLabel } from './domain/source.ts'
import { createFetcher } from './fetching/fetcher.ts'
import { createPollLog } from './fetching/poll-log.ts'
import { createSourceClient } from './fetching/source-client.ts'
import { createAcceptor, flushSeconds } from './intake/accept.ts'
import { createArrivalLog } from './intake/arrival-log.ts'
import { createKeySets } from './intake/key-sets.ts'
import { createQuarantine } from './intake/quarantine.ts'
import { mountWebhooks } from './intake/webhook.ts'
import { createHandOver } from './landing/hand-over.ts'
import type { LandingDeps } from './landing/landing-deps.ts'
import { createReceiverMetrics } from './metrics.ts'
import { createRestingQueues } from './reconciling/due.ts'
import { createAwaited, restMs } from './reconciling/poller.ts'
import { createUnsignedHints } from './reconciling/unsigned-hints.ts'
import type { ReceiverSettings } from './settings.ts'
import type { RunningSlice, Slice } from './slice.ts'
import { cancelJob, type Cancelable } from './submitting/canceling.ts'
import { joinSubmit } from './submitting/joining.ts'
import { createSubmitter } from './submitting/submit.ts'
import { type Traces } from './traces/traces.ts'

/** The background roles of the core, by the names in logs and metrics. background.ts defines the rounds of each. */
export type RoleName =
  | 'inbox'
  | 'inbox-leases'
  | 'feed'
  | 'arrival-log'
  | 'poll-log'
  | 'quarantine'
  | 'minutes'
  | 'arrival-partitions'
  | 'key-sets'
  | 'accounts'
  | 'submits'
  | 'poller'
  | 'alerts'
  | 'issues'

export type PartsOptions = {
  settings: ReceiverSettings
  logger: Logger
  /** The optional capabilities. */
  slices: readonly Slice[]
  /** Called once, with the function that puts new keys in force. The start calls that function on SIGHUP. */
  onKeysReload?: (replace: (keys: Keys) => void) => void
  /** For tests: the clock of this process. It also replaces Postgres's time, which replicas share. */
  clock?: () => Date
}

/** The parts that the listeners and the background roles are made of. A function takes only the groups that it uses. */
export type Parts = ReturnType<typeof openParts>

export function openParts(options: PartsOptions, traces: Traces | undefined) {
  const shared = openShared(options, traces)
  const polls = openPolls(shared)
  const landing = openLanding(shared, polls)
  const intake = openIntake(shared, landing)
  return { shared, polls, landing, intake, calls: openCalls(shared), slices: options.slices }
}

/** For every part: settings, clocks, Postgres, keys, metrics, and the life of the process. */
type Shared = ReturnType<typeof openShared>

function openShared(options: PartsOptions, traces: Traces | undefined) {
  const { settings, logger, clock = () => new Date() } = options
  const pools = openPools(settings)
  const { db } = pools.others
  const time = options.clock ? timeOf(options.clock) : postgresTime
  let { keys } = settings
  options.onKeysReload?.((replacement) => {
    keys = replacement
  })
  const lifetime = createLifetime()
  const keySets = createKeySets({ fetch, clock, logger, cut: lifetime.cut.signal })
  const registry = createRegistry()
  const { fetchRatePerMinute, stuckAfterSeconds } = settings
  const metrics = createReceiverMetrics({ registry, db, time, fetchRatePerMinute, stuckAfterSeconds, logger })
  // Each role listens to its name once it has started. An earlier wake does nothing.
  const wakes = new EventEmitter()
  return {
    settings,
    logger,
    fetch,
    pools,
    /** The connections of all parts without their own. */
    db,
    clock,
    time,
    keys: () => keySets.apply(keys),
    keySets,
    registry,
    metrics,
    traces,
    /** Acknowledging has priority over other work of this process. */
    pressure: createPressure(),
    wakes,
    /** Starts the next round of a role now. */
    wake: (role: RoleName) => void wakes.emit(role),
    lifetime,
  }
}

/** The stages of the process. */
function createLifetime() {
  let isPrepared = false
  const { promise: prepared, resolve } = Promise.withResolvers<void>()
  return {
    /**
     * Resolves once Postgres has been reached and the schema is up to date. Until then no role runs, and accepted
     * deliveries stay in the inbox.
     */
    prepared,
    isPrepared: () => isPrepared,
    notePrepared: () => {
      isPrepared = true
      resolve()
    },
    /** Aborts when `/readyz` starts to answer 503, so that the load balancer removes this replica. */
    retired: new AbortController(),
    /** Aborts when no new work may begin. */
    stopping: new AbortController(),
    /** Aborts the calls in flight, after the grace. */
    cut: new AbortController(),
  }
}

/**
 * Divides the connections, of which there are at least 3. Acknowledging, landing and (in a pool of 8 or more) polling
 * have their own, so none of them waits for a page or for another. They run few statements, by indexes alone, so their
 * plans are kept.
 *
 * The hand-over has at most three, since createBatches() in landing/batches.ts writes at most three batches at a time.
 * Claims from the inbox and renewals of their leases use the same connections, after the batches before them:
 * deliveries claimed sooner would only wait here, and a renewal has half of its lease left.
 */
function openPools({ databaseUrl: url, databasePoolSize: size }: ReceiverSettings) {
  const [accepts, handOvers, polling] = size < 5 ? [1, 1, 0] : size < 8 ? [2, 2, 0] : size < 10 ? [2, 3, 1] : [2, 3, 2]
  const soon = { statementSeconds: flushSeconds, silenceSeconds: flushSeconds + 1 }
  const accept = createPool({ url, max: accepts, keepsPlans: true, ...soon })
  const handOver = createPool({ url, max: handOvers, keepsPlans: true })
  const polls = polling === 0 ? handOver : createPool({ url, max: polling, keepsPlans: true })
  const others = createPool({ url, max: size - accepts - handOvers - polling })
  return {
    accept,
    handOver,
    /** For polls: their claims, calls and landings. A pool of fewer than 8 shares the connections of the hand-over. */
    polls,
    others,
    close: async () => {
      const all = new Set([accept, handOver, polls, others])
      await Promise.all([...all].map((pool) => pool.close()))
    },
  }
}

/** Calls to the sources within the keys' quota: results, submits and reads. */
function openCalls({ settings, db, pools, keys, clock, time, logger, metrics, fetch, wake, lifetime }: Shared) {
  const { generationApiUrl: baseUrl, fetchRatePerMinute, webhookPublicUrl } = settings
  const client = createSourceClient({ baseUrl, fetch, clock })
  const calling = { client, keys, fetchRatePerMinute, time, logger, calls: metrics.providerCalls }
  const pollLog = createPollLog({ db, dropped: metrics.pollsDropped, wake: () => wake('poll-log') })
  const submitting = { ...calling, db, webhookPublicUrl, cut: lifetime.cut.signal }
  return {
    pollLog,
    fetchResult: createFetcher({ ...calling, db: pools.polls.db, clock, onPolled: pollLog.record }),
    submitter: createSubmitter(submitting),
    sourceReads: createSourceReads(submitting),
    /** Asks the source of a request to cancel its job. */
    cancel: (request: Cancelable) => cancelJob(submitting, request),
  }
}

/** The state of polls that pages, webhooks and landings share with the poller. */
function openPolls({ db, keys, clock, time, logger, metrics }: Shared) {
  return {
    awaited: createAwaited(),
    resting: createRestingQueues({ clock, keys }, restMs),
    unsignedHints: createUnsignedHints({ db, time, logger, dropped: metrics.unsignedHintsDropped }),
  }
}

/** The dependencies of landing, and the deliveries that this process holds until they have landed. */
function openLanding(shared: Shared, { resting }: ReturnType<typeof openPolls>) {
  const { settings, pools, db, keys, clock, time, logger, metrics, traces, pressure, wake, lifetime } = shared
  // While this key has no call, a poll with it would get none. The round of the poller follows within a second.
  const wakePoller = (keyName: string) => {
    if (!resting.isResting(keyName)) wake('poller')
  }
  const landingDeps: LandingDeps = {
    // For replays, with the connections of all others. The hand-over and the polls have their own.
    db,
    keys,
    mediaHosts: settings.mediaHosts,
    time,
    logger,
    onProcessed: ({ report, outcome, receivedAt }) => {
      if (outcome !== 'landed') return
      wake('feed')
      const { status, via, source_name, reporting_key, media_complete } = report
      if (!media_complete) wakePoller(reporting_key)
      metrics.landed.inc({ status, source: via === 'poll' ? 'reconciler' : 'webhook', ...sourceLabel(source_name) })
      if (receivedAt) metrics.landingSeconds.observe(Math.max(0, (clock().getTime() - receivedAt.getTime()) / 1000))
    },
    onHint: wakePoller,
    traces,
    join: (joining) => joinSubmit({ db, keys, time, logger }, joining),
  }
  const handOver = createHandOver({
    ...landingDeps,
    db: pools.handOver.db,
    giveWay: pressure.giveWay,
    wakeInbox: () => wake('inbox'),
    isPrepared: lifetime.isPrepared,
    signal: lifetime.stopping.signal,
  })
  return { landingDeps, handOver }
}

/** Storing webhooks, and the logs that are written after the answers: arrivals and the quarantine. */
function openIntake(shared: Shared, { handOver }: ReturnType<typeof openLanding>) {
  const { settings, pools, db, time, clock, logger, metrics, pressure, wake, lifetime } = shared
  const onStored = () => wake('inbox')
  return {
    acceptor: createAcceptor({ db: pools.accept.db, time, logger, handOver, onFlush: pressure.note, onStored }),
    arrivalLog: createArrivalLog({ db, logger, clock, metrics, wake: () => wake('arrival-log') }),
    quarantine: createQuarantine({
      db,
      clock,
      dropped: metrics.quarantineDropped,
      maxRows: settings.quarantineMaxRows,
      maxBytes: settings.quarantineMaxBytes,
      wake: () => wake('quarantine'),
      signal: lifetime.stopping.signal,
    }),
  }
}

/** The public listener's application: `POST /webhooks`, and `POST /webhooks/<name>` for each source. */
export function openPublicApp({ shared, intake, polls }: Parts): Express {
  const { settings, keys, keySets, clock, logger, traces } = shared
  const { maxBodyBytes, trustProxy } = settings
  const calledBack = { onUnknownKey: keySets.doubt, onUnsigned: polls.unsignedHints.note }
  const webhooks = { keys, clock, logger, traces, maxBodyBytes, ...intake, ...calledBack }
  return createApp({ logger, trustProxy, mount: (app) => mountWebhooks(app, webhooks) })
}

/** Starts the slices. No round of theirs begins before the receiver is prepared. */
export function startSlices({ shared, calls, slices }: Parts): Promise<RunningSlice[]> {
  const { settings, db, keys, clock, logger, pressure, registry, wake, lifetime } = shared
  const { prepared: after, cut, stopping } = lifetime
  const life = { after, cut: cut.signal, signal: stopping.signal }
  const { fetchResult } = calls
  const wakeFeed = () => wake('feed')
  const deps = { settings, db, keys, clock, logger, pressure, registry, fetchResult, wakeFeed, ...life }
  return Promise.all(slices.map((slice) => slice.start(deps)))
}
