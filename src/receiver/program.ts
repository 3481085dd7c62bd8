import type { Express, Router } from 'express'
import type { Registry } from 'prom-client'
import { createApp } from '../platform/http/app.ts'
import { listen, type Listener } from '../platform/http/http.ts'
import { watchReadiness, withHealth } from '../platform/http/readiness.ts'
import type { Logger } from '../platform/logger.ts'
import { createRegistry } from '../platform/metrics.ts'
import { prepareSchema } from '../platform/postgres/await-postgres.ts'
import type { Database } from '../platform/postgres/postgres.ts'
import { createSharedClock } from '../platform/postgres/shared-clock.ts'
import type { RunningProgram } from '../platform/program.ts'
import { startBackground, type Background } from './background.ts'
import type { Keys } from './domain/keys.ts'
import { migrations } from './domain/migrations.ts'
import { createFetcher } from './fetching/fetcher.ts'
import { createPollLog } from './fetching/poll-log.ts'
import { createProviderClient } from './fetching/provider-client.ts'
import { createAcceptor, type Handover } from './intake/accept.ts'
import { createArrivalLog } from './intake/arrival-log.ts'
import { createKnownSenders } from './intake/known-senders.ts'
import { createPressure, type Pressure } from './intake/pressure.ts'
import { createQuarantine } from './intake/quarantine.ts'
import { mountWebhooks, type WebhookDeps } from './intake/webhook.ts'
import { createLander, type Lander } from './landing/lander.ts'
import type { WorkerDeps } from './landing/worker.ts'
import { createReceiverMetrics, type ReceiverMetrics } from './metrics.ts'
import { logFault, logFolded, noteArrival, noteAuthentic, noteLanded } from './observers.ts'
import { openPools } from './pools.ts'
import { createListReader, type ListReader } from './queries/list-reader.ts'
import { createAwaited, type Awaited } from './reconciling/awaited.ts'
import type { ReceiverSettings } from './settings.ts'
import type { RunningSlice, Slice } from './slice.ts'
import { createSubmitClient } from './submitting/submit-client.ts'
import { createSubmitter, type Submitter } from './submitting/submit.ts'
import { openTraces, type Traces } from './traces/traces.ts'

/** Everything that the internal listener's pages and API may use. */
export type ReceiverDeps = {
  settings: ReceiverSettings
  /** The optional capabilities. */
  slices: readonly Slice[]
  db: Database
  /** For lists, which may come from a standby. */
  lists: ListReader
  keys: () => Keys
  clock: () => Date
  logger: Logger
  metrics: ReceiverMetrics
  registry: Registry
  /** What processing a delivery needs; a replay runs with it. */
  landing: WorkerDeps
  submitter: Submitter
  background: Background
  /** Notes whose results somebody waits for. */
  awaited: Awaited
  /** Wakes the role that claims deliveries. */
  onStored: () => void
  startedAt: Date
  isReady: () => boolean
  signal: AbortSignal
}

export type ReceiverOptions = {
  settings: ReceiverSettings
  logger: Logger
  /** The optional capabilities. */
  slices: readonly Slice[]
  /** The pages and API of the internal listener. */
  internal: (deps: ReceiverDeps) => Router
  /** Asks for new keys on SIGHUP; called with the function that puts them in force. */
  onKeysReload?: (replace: (keys: Keys) => void) => void
  /** Aborts when the start is no longer wanted: waiting for Postgres ends, and everything that was started can be stopped. */
  abandoned?: AbortSignal
  /** False where only runs of the reconciler poll. */
  followsUp?: boolean
  /** The clock of everything. Without one, each host judges arrivals and signatures by its own, and all else is shared. */
  clock?: () => Date
  fetch?: typeof globalThis.fetch
}

/** What every part of the receiver is made from. */
type Base = ReturnType<typeof openBase>

/**
 * Starts the receiver: its two listeners at once, and its background roles when Postgres can be reached and the schema is up to
 * date. Until then the receiver is alive and not ready.
 */
export async function startReceiver(options: ReceiverOptions): Promise<RunningProgram> {
  const { settings, logger, slices } = options
  const traces = await openTraces(settings, logger)
  const base = openBase(options, traces)
  const { keys, metrics, pools, retired, stopping, cut } = base
  const calls = openCalls(base)
  const landing = openLanding(base)
  const logs = openLogs(base)
  const pressure = createPressure()
  const lander = openLander(base, landing, pressure)
  const awaited = createAwaited()
  const { promise: prepared, resolve: begin } = Promise.withResolvers<void>()
  const background = startBackground({
    ...calls,
    ...logs,
    prepared,
    settings,
    slices: startSlices(base, { landing, pressure, after: prepared }),
    kinds: slices,
    landing,
    lander,
    landingDb: pools.landing.db,
    cut: cut.signal,
    metrics,
    pressure,
    awaited,
    compareClocks: base.sharedClock.compare,
    followsUp: options.followsUp ?? true,
    fetch: base.fetch,
    signal: stopping.signal,
  })
  base.roles.wake = background.wake
  const ready = await watchReadiness({ url: settings.databaseUrl, ...migrations, logger, signal: retired.signal })
  const publicApp = openPublicApp(base, { lander, pressure, logs, background, traces })
  const deps: ReceiverDeps = {
    ...base,
    slices,
    keys,
    lists: createListReader({ primary: base.db, standby: pools.standby?.db, logger }),
    landing,
    submitter: calls.submitter,
    background,
    awaited,
    onStored: () => background.wake('inbox'),
    startedAt: base.clock(),
    isReady: ready.isReady,
    signal: stopping.signal,
  }
  // Callers of the internal listener are behind other proxies than senders are, mostly behind none.
  const { internalTrustProxy: trustProxy } = settings
  const internalApp = createApp({ logger, trustProxy, mount: (app) => app.use(options.internal(deps)) })

  const listeners: Listener[] = []
  const stop = async (graceMs: number, graceEnds = performance.now() + graceMs) => {
    retired.abort()
    stopping.abort()
    const cutTimer = setTimeout(() => cut.abort(), graceMs)
    await Promise.all(listeners.map((listener) => listener.close(graceMs)))
    await background.drain(Math.max(0, graceEnds - performance.now()))
    clearTimeout(cutTimer)
    await Promise.all([pools.close(), ready.stop(), traces?.close(graceEnds - performance.now())])
  }
  try {
    await listenOn(listeners, base, { publicApp, internalApp, isReady: ready.isReady })
    if (await prepareReceiver(options, stopping.signal)) {
      await base.sharedClock.begin()
      begin()
    }
    await ready.lookNow()
  } catch (error) {
    await stop(0)
    throw error
  }
  const [outside, inside] = listeners.map(({ url }) => url)
  return { urls: { webhooks: `${outside}/webhooks`, console: `${inside}/` }, retire: () => retired.abort(), stop }
}

function openBase(options: ReceiverOptions, traces: Traces | undefined) {
  const { settings, logger, clock: hostClock = () => new Date(), fetch = globalThis.fetch } = options
  const pools = openPools(settings)
  const { db } = pools.others
  const sharedClock = createSharedClock({ db, logger, hostNow: hostClock })
  const clock = options.clock ?? sharedClock.now
  let { keys } = settings
  options.onKeysReload?.((replacement) => {
    keys = replacement
  })
  const registry = createRegistry({ processDefaults: true })
  const { fetchRatePerMinute, stuckAfterSeconds } = settings
  const metrics = createReceiverMetrics({ registry, db, clock, fetchRatePerMinute, stuckAfterSeconds, logger })
  /** Wakes background roles; nothing runs before they have started. */
  const roles: Pick<Background, 'wake'> = { wake: () => {} }
  return {
    settings,
    logger,
    slices: options.slices,
    hostClock,
    fetch,
    pools,
    db,
    sharedClock,
    clock,
    keys: () => keys,
    registry,
    metrics,
    traces,
    roles,
    /** Aborts when the load balancer is to see that this replica leaves. */
    retired: new AbortController(),
    /** Aborts when no new work begins. */
    stopping: new AbortController(),
    /** Aborts the calls in flight, after the grace. */
    cut: new AbortController(),
  }
}

/** Calls to the provider: results and submits, within the keys' quota. */
function openCalls({ settings, db, keys, clock, logger, metrics, fetch, roles, cut }: Base) {
  const { generationApiUrl: baseUrl, fetchRatePerMinute, webhookPublicUrl } = settings
  const calls = metrics.providerCalls
  const pollLog = createPollLog({ db, dropped: metrics.pollsDropped, wake: () => roles.wake('polls') })
  const client = createProviderClient({ baseUrl, fetch, clock })
  const onPolled = pollLog.record
  const fetcher = createFetcher({ db, client, keys, fetchRatePerMinute, clock, logger, calls, onPolled })
  const post = createSubmitClient({ baseUrl, fetch, clock })
  const submitting = { db, post, keys, webhookPublicUrl, fetchRatePerMinute, clock, logger, calls, cut: cut.signal }
  return { pollLog, fetcher, submitter: createSubmitter(submitting) }
}

function openLanding({ settings, db, keys, clock, hostClock, logger, metrics, traces, roles }: Base): WorkerDeps {
  const wakeFeed = () => roles.wake('feed')
  const wakeFollowUps = () => roles.wake('followUps')
  const onLanded = noteLanded({ metrics, clock: hostClock, wakeFeed, wakeFollowUps })
  return { db, keys, mediaHosts: settings.mediaHosts, clock, logger, onLanded, traces }
}

function openLander({ pools, roles, stopping }: Base, landing: WorkerDeps, { rest }: Pressure): Lander {
  const wake = () => roles.wake('inbox')
  return createLander({ ...landing, db: pools.landing.db, rest, wake, signal: stopping.signal })
}

/** The logs that are written behind the answers: arrivals and the quarantine. */
function openLogs({ settings, db, hostClock: clock, logger, metrics, roles, stopping }: Base) {
  const senders = createKnownSenders({ db, clock })
  const arrivalLog = createArrivalLog({
    db,
    onWritten: noteAuthentic(senders, metrics),
    dropped: metrics.logDropped,
    clock,
    wake: () => roles.wake('arrivals'),
    onFolded: logFolded(logger),
  })
  const quarantine = createQuarantine({
    db,
    senders,
    dropped: metrics.quarantineDropped,
    maxRows: settings.quarantineMaxRows,
    maxBytes: settings.quarantineMaxBytes,
    wake: () => roles.wake('quarantine'),
    signal: stopping.signal,
  })
  return { arrivalLog, quarantine }
}

type Started = { landing: WorkerDeps; pressure: Pressure; after: Promise<void> }

function startSlices({ settings, slices, registry, roles, cut, stopping }: Base, started: Started): RunningSlice[] {
  const wakeFeed = () => roles.wake('feed')
  const deps = { ...started, settings, registry, wakeFeed, cut: cut.signal, signal: stopping.signal }
  return slices.map((slice) => slice.start(deps))
}

type PublicDeps = {
  lander: Lander
  pressure: Pressure
  logs: ReturnType<typeof openLogs>
  background: Background
  traces: Traces | undefined
}

/** The public listener's application: `POST /webhooks`. */
function openPublicApp(base: Base, { lander, pressure, logs, background, traces }: PublicDeps) {
  const { settings, pools, logger, metrics } = base
  const { arrivalLog, quarantine } = logs
  // While the schema is older than this version, accepted deliveries stay in the queue and nothing lands.
  const handover: Handover = { ...lander, reserve: (delivery) => background.isPrepared() && lander.reserve(delivery) }
  const onStored = () => background.wake('inbox')
  const webhooks: WebhookDeps = {
    keys: base.keys,
    acceptor: createAcceptor({ db: pools.accept.db, logger, handover, onFlush: pressure.note, onStored }),
    maxBodyBytes: settings.maxBodyBytes,
    clock: base.hostClock,
    onRefused: quarantine.record,
    onFault: logFault(logger),
    onArrival: noteArrival({ arrivalLog, metrics, traces }),
  }
  return createApp({ logger, trustProxy: settings.trustProxy, mount: (app) => mountWebhooks(app, webhooks) })
}

type Apps = { publicApp: Express; internalApp: Express; isReady: () => boolean }

/** Opens both listeners; `listeners` gets each as soon as it listens, so that a failure of the second closes the first. */
async function listenOn(listeners: Listener[], base: Base, { publicApp, internalApp, isReady }: Apps): Promise<void> {
  const { settings, logger, metrics, retired } = base
  const onClosed = (reason: string) => metrics.connectionsClosed.inc({ reason })
  const both = { keepAliveSeconds: settings.keepAliveSeconds, retired: retired.signal, logger, onClosed }
  const outer = { host: settings.host, port: settings.port, setting: 'PORT', ...both }
  const inner = { host: settings.internalHost, port: settings.internalPort, setting: 'INTERNAL_PORT', ...both }
  listeners.push(await listen({ ...outer, handler: withHealth(publicApp, isReady), continues: true, halfOpen: true }))
  listeners.push(await listen({ ...inner, handler: withHealth(internalApp, isReady) }))
}

/** Waits for Postgres and the schema. False where the start was abandoned. */
function prepareReceiver({ settings, logger, abandoned }: ReceiverOptions, stopping: AbortSignal): Promise<boolean> {
  const { databaseUrl: url, migrateOnStart, production } = settings
  const atStart = { url, ...migrations, program: 'receiver', migrateOnStart, production, logger }
  return prepareSchema(atStart, abandoned ?? stopping)
}
