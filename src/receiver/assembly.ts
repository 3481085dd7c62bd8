import type { Express } from 'express'
import { createApp } from '../platform/http/app.ts'
import type { Logger } from '../platform/logger.ts'
import { createRegistry } from '../platform/metrics.ts'
import { createPool } from '../platform/postgres/postgres.ts'
import { postgresTime, timeOf } from '../platform/postgres/time.ts'
import { createPressure, type Pressure } from '../platform/pressure.ts'
import type { Keys } from './domain/keys.ts'
import { sourceLabel } from './domain/source.ts'
import { createFetcher } from './fetching/fetcher.ts'
import { createPollLog } from './fetching/poll-log.ts'
import { createSourceClient } from './fetching/source-client.ts'
import { createSourceReads } from './fetching/source-reads.ts'
import { createAcceptor, flushSeconds } from './intake/accept.ts'
import { createArrivalLog } from './intake/arrival-log.ts'
import { createKeySets } from './intake/key-sets.ts'
import { createQuarantine } from './intake/quarantine.ts'
import { mountWebhooks } from './intake/webhook.ts'
import { createHandOver } from './landing/hand-over.ts'
import type { LandingDeps } from './landing/landing-deps.ts'
import { createReceiverMetrics } from './metrics.ts'
import type { OnCallRole } from './on-call/roles.ts'
import { createAwaited } from './reconciling/awaited.ts'
import { createUnsignedHints } from './reconciling/unsigned-hints.ts'
import type { ReceiverSettings } from './settings.ts'
import type { RunningSlice, Slice } from './slice.ts'
import { cancelJob, type Cancelable } from './submitting/canceling.ts'
import { joinSubmit, type Joining } from './submitting/joining.ts'
import { createSubmitter } from './submitting/submit.ts'
import { type Traces } from './traces/traces.ts'

/** The background roles of the core, by the names in logs and metrics. */
export type Role =
  | 'inbox'
  | 'inbox-leases'
  | 'feed'
  | 'poller'
  | 'arrival-log'
  | 'poll-log'
  | 'quarantine'
  | 'submits'
  | 'accounts'
  | 'key-sets'
  | 'minutes'
  | 'arrival-partitions'
  | OnCallRole

type RoleWakes = {
  /** Starts the next round of a background role now. */
  wake: (role: Role) => void
  /** Wakes the poller, unless the key has no call for them. A poll with another key waits for the next round. */
  wakePoller: (keyName: string) => void
}

export type PartsOptions = {
  settings: ReceiverSettings
  logger: Logger
  /** The optional capabilities. */
  slices: readonly Slice[]
  /** Called once, with the function that puts new keys in force. The start calls that function on SIGHUP. */
  onKeysReload?: (replace: (keys: Keys) => void) => void
  /** For tests: the clock of this process. It also replaces Postgres's time, which replicas share. */
  clock?: () => Date
  fetch?: typeof globalThis.fetch
}

/** The parts that the listeners and the background roles are made of. */
export type Parts = ReturnType<typeof openParts>

export function openParts(options: PartsOptions, traces: Traces | undefined) {
  const base = openBase(options, traces)
  const pressure = createPressure()
  const shared = { pressure, awaited: createAwaited() }
  return { ...base, ...shared, ...openCalls(base), ...openLogs(base), ...openLanding(base, pressure) }
}

/**
 * Is resolved once Postgres has been reached and the schema is up to date. Until then no role runs, and accepted
 * deliveries stay in the inbox.
 */
function createPrepared() {
  let isDone = false
  const { promise, resolve } = Promise.withResolvers<void>()
  return {
    done: promise,
    isDone: () => isDone,
    resolve: () => {
      isDone = true
      resolve()
    },
  }
}

/** The dependencies of every part. */
type Base = ReturnType<typeof openBase>

function openBase(options: PartsOptions, traces: Traces | undefined) {
  const { settings, logger, clock = () => new Date(), fetch = globalThis.fetch } = options
  const pools = openPools(settings)
  const { db } = pools.others
  const time = options.clock ? timeOf(options.clock) : postgresTime
  let { keys } = settings
  options.onKeysReload?.((replacement) => {
    keys = replacement
  })
  /** Aborts the calls in flight, after the grace. */
  const cut = new AbortController()
  const keySets = createKeySets({ fetch, clock, logger, cut: cut.signal })
  const registry = createRegistry({ processDefaults: true })
  const { fetchRatePerMinute, stuckAfterSeconds } = settings
  const metrics = createReceiverMetrics({ registry, db, time, fetchRatePerMinute, stuckAfterSeconds, logger })
  // Until startBackground() has set them, no role runs.
  const roles: RoleWakes = { wake: () => {}, wakePoller: () => {} }
  return {
    settings,
    logger,
    slices: options.slices,
    fetch,
    pools,
    db,
    clock,
    time,
    keys: () => keySets.apply(keys),
    keySets,
    registry,
    metrics,
    traces,
    roles,
    prepared: createPrepared(),
    /** Aborts when `/readyz` starts to answer 503, so that the load balancer removes this replica. */
    retired: new AbortController(),
    /** Aborts when no new work may begin. */
    stopping: new AbortController(),
    cut,
  }
}

/**
 * Acknowledging, landing and (in a pool of 8 or more) polling have separate connections, so none of them waits for a
 * page or for another. They run few statements, by indexes alone, so their plans are kept.
 */
function openPools({ databaseUrl: url, databasePoolSize }: ReceiverSettings) {
  const share = connectionsOf(databasePoolSize)
  const accept = createPool({
    url,
    max: share.accept,
    keepsPlans: true,
    statementSeconds: flushSeconds,
    silenceSeconds: flushSeconds + 1,
  })
  const handOver = createPool({ url, max: share.handOver, keepsPlans: true })
  const polls = share.polls === 0 ? handOver : createPool({ url, max: share.polls, keepsPlans: true })
  const others = createPool({ url, max: share.others })
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

/**
 * Divides the connections. `poolSize` is at least 3. The hand-over has at most three, since createBatches() in
 * landing/batches.ts writes at most three batches at a time. Claims from the inbox and renewals of their leases use the
 * same connections, after the batches before them: deliveries claimed sooner would only wait here, and a renewal has
 * half of its lease left.
 */
function connectionsOf(poolSize: number) {
  const accept = poolSize < 5 ? 1 : 2
  const handOver = poolSize < 5 ? 1 : poolSize < 8 ? 2 : 3
  const polls = poolSize < 8 ? 0 : poolSize < 10 ? 1 : 2
  return { accept, handOver, polls, others: poolSize - accept - handOver - polls }
}

/** Calls to the provider: results and submits, within the keys' quota. */
function openCalls({ settings, db, pools, keys, clock, time, logger, metrics, fetch, roles, cut }: Base) {
  const { generationApiUrl: baseUrl, fetchRatePerMinute, webhookPublicUrl } = settings
  const client = createSourceClient({ baseUrl, fetch, clock })
  const calling = { client, keys, fetchRatePerMinute, time, logger, calls: metrics.providerCalls }
  const pollLog = createPollLog({ db, dropped: metrics.pollsDropped, wake: () => roles.wake('poll-log') })
  const fetcher = createFetcher({ ...calling, db: pools.polls.db, clock, onPolled: pollLog.record })
  const submitting = { ...calling, db, webhookPublicUrl, cut: cut.signal }
  return {
    pollLog,
    fetcher,
    unsignedHints: createUnsignedHints({ db, time, logger, dropped: metrics.unsignedHintsDropped }),
    submitter: createSubmitter(submitting),
    sourceReads: createSourceReads(submitting),
    /** Asks the source of a request to cancel its job. */
    cancel: (request: Cancelable) => cancelJob(submitting, request),
  }
}

/** The dependencies of landing, and the deliveries that this process holds until they have landed. */
function openLanding(base: Base, { giveWay }: Pressure) {
  const { settings, pools, db, keys, clock, time, logger, metrics, traces, roles, prepared, stopping } = base
  const wakePoller = (keyName: string) => roles.wakePoller(keyName)
  const join = (joining: Joining) => joinSubmit({ db, keys, time, logger }, joining)
  const onProcessed: LandingDeps['onProcessed'] = ({ report, outcome, receivedAt }) => {
    if (outcome !== 'landed') return
    roles.wake('feed')
    const { status, via, source_name, key_name, media_complete } = report
    if (!media_complete) wakePoller(key_name)
    metrics.landed.inc({ status, source: via === 'poll' ? 'reconciler' : 'webhook', ...sourceLabel(source_name) })
    if (receivedAt) metrics.landingSeconds.observe(Math.max(0, (clock().getTime() - receivedAt.getTime()) / 1000))
  }
  const { mediaHosts } = settings
  // For replays, with the connections of all others. The hand-over and the polls have their own.
  const landingDeps: LandingDeps = { db, keys, mediaHosts, time, logger, onProcessed, onHint: wakePoller, traces, join }
  const wakeInbox = () => roles.wake('inbox')
  const isPrepared = prepared.isDone
  const handOver = createHandOver({
    ...landingDeps,
    db: pools.handOver.db,
    giveWay,
    wakeInbox,
    isPrepared,
    signal: stopping.signal,
  })
  return { landingDeps, handOver }
}

/** The logs that are written after the answers: arrivals and the quarantine. */
function openLogs({ settings, db, clock, logger, metrics, roles, stopping }: Base) {
  const quarantine = createQuarantine({
    db,
    clock,
    dropped: metrics.quarantineDropped,
    maxRows: settings.quarantineMaxRows,
    maxBytes: settings.quarantineMaxBytes,
    wake: () => roles.wake('quarantine'),
    signal: stopping.signal,
  })
  const arrivalLog = createArrivalLog({
    db,
    logger,
    clock,
    metrics,
    wake: () => roles.wake('arrival-log'),
  })
  return { arrivalLog, quarantine }
}

/** Starts the slices. No round of theirs begins before the receiver is prepared. */
export function startSlices(parts: Parts): Promise<RunningSlice[]> {
  const { roles, fetcher: fetchResult, prepared, cut, stopping } = parts
  const wakeFeed = () => roles.wake('feed')
  const deps = { ...parts, fetchResult, wakeFeed, after: prepared.done, cut: cut.signal, signal: stopping.signal }
  return Promise.all(parts.slices.map((slice) => slice.start(deps)))
}

/** The public listener's application: `POST /webhooks`, and `POST /webhooks/<name>` for each source. */
export function openPublicApp(parts: Parts): Express {
  const { settings, pools, logger, roles, handOver, pressure, unsignedHints, keySets } = parts
  const acceptor = createAcceptor({
    db: pools.accept.db,
    time: parts.time,
    logger,
    handOver,
    onFlush: pressure.note,
    onStored: () => roles.wake('inbox'),
  })
  const webhooks = {
    ...parts,
    acceptor,
    maxBodyBytes: settings.maxBodyBytes,
    onUnknownKey: keySets.doubt,
    onUnsigned: unsignedHints.note,
  }
  return createApp({ logger, trustProxy: settings.trustProxy, mount: (app) => mountWebhooks(app, webhooks) })
}
