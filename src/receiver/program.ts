import type { Router } from 'express'
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
import { createPressure } from './intake/pressure.ts'
import { createQuarantine } from './intake/quarantine.ts'
import { mountWebhooks, type WebhookDeps } from './intake/webhook.ts'
import { createLander } from './landing/lander.ts'
import type { WorkerDeps } from './landing/worker.ts'
import { createReceiverMetrics, type ReceiverMetrics } from './metrics.ts'
import { logFault, logFolded, noteArrival, noteAuthentic, noteCopied, noteLanded } from './observers.ts'
import { openPools } from './pools.ts'
import { createListReader, type ListReader } from './queries/list-reader.ts'
import { createAwaited, type Awaited } from './reconciling/awaited.ts'
import type { ReceiverSettings } from './settings.ts'
import { createSubmitClient } from './submitting/submit-client.ts'
import { createSubmitter, type Submitter } from './submitting/submit.ts'
import { registerBacklogGauge } from './subscriptions/backlog-gauge.ts'
import { openTraces } from './traces/traces.ts'

/** Everything that the internal listener's pages and API may use. */
export type ReceiverDeps = {
  settings: ReceiverSettings
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
  /** The pages and API of the internal listener. */
  internal: (deps: ReceiverDeps) => Router
  /** Asks for new keys on SIGHUP; called with the way to put them in force. */
  onKeysReload?: (replace: (keys: Keys) => void) => void
  /** The start is no longer wanted: waiting for Postgres ends, and what was started can be stopped. */
  abandoned?: AbortSignal
  /** False where nothing is to be polled but by a run of the reconciler. */
  followsUp?: boolean
  /** For all that it does. Without one each host judges by itself when something came and whether it was signed in time; all else is shared. */
  clock?: () => Date
  fetch?: typeof globalThis.fetch
}

/**
 * Starts the receiver: its two listeners at once, and its background loops when
 * Postgres can be reached and the schema is up to date. Until then it is alive and not ready.
 */
export async function startReceiver(options: ReceiverOptions): Promise<RunningProgram> {
  const { settings, logger, clock: hostClock = () => new Date(), fetch = globalThis.fetch } = options
  const traces = await openTraces(settings, logger)
  const pools = openPools(settings)
  const retired = new AbortController()
  const stopping = new AbortController()
  const cut = new AbortController()
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
  registerBacklogGauge({ registry, db, logger })
  const client = createProviderClient({ baseUrl: settings.generationApiUrl, fetch, clock })
  const pollLog = createPollLog({ db, dropped: metrics.pollsDropped, wake: () => background.wake('polls') })
  const fetcher = createFetcher({
    db,
    client,
    keys: () => keys,
    fetchRatePerMinute,
    clock,
    logger,
    calls: metrics.providerCalls,
    onPolled: pollLog.record,
  })
  const pressure = createPressure()
  const landing: WorkerDeps = {
    db,
    keys: () => keys,
    mediaHosts: settings.mediaHosts,
    clock,
    logger,
    onLanded: noteLanded({
      metrics,
      clock: hostClock,
      wakeFeed: () => background.wake('feed'),
      wakeFollowUps: () => background.wake('followUps'),
    }),
    traces,
  }
  const lander = createLander({
    ...landing,
    db: pools.landing.db,
    rest: pressure.rest,
    wake: () => background.wake('inbox'),
    signal: stopping.signal,
  })
  const submitter = createSubmitter({
    db,
    post: createSubmitClient({ baseUrl: settings.generationApiUrl, fetch, clock }),
    keys: () => keys,
    webhookPublicUrl: settings.webhookPublicUrl,
    fetchRatePerMinute,
    clock,
    logger,
    calls: metrics.providerCalls,
    cut: cut.signal,
  })
  const senders = createKnownSenders({ db, clock: hostClock })
  const arrivalLog = createArrivalLog({
    db,
    onWritten: noteAuthentic(senders, metrics),
    dropped: metrics.logDropped,
    clock: hostClock,
    wake: () => background.wake('arrivals'),
    onFolded: logFolded(logger),
  })
  const quarantine = createQuarantine({
    db,
    senders,
    dropped: metrics.quarantineDropped,
    maxRows: settings.quarantineMaxRows,
    maxBytes: settings.quarantineMaxBytes,
    wake: () => background.wake('quarantine'),
    signal: stopping.signal,
  })
  const awaited = createAwaited()
  const { promise: prepared, resolve: begin } = Promise.withResolvers<void>()
  const background = startBackground({
    prepared,
    settings,
    landing,
    lander,
    landingDb: pools.landing.db,
    fetcher,
    cut: cut.signal,
    submitter,
    metrics,
    arrivalLog,
    pollLog,
    quarantine,
    pressure,
    awaited,
    compareClocks: sharedClock.compare,
    onCopied: noteCopied({ metrics, wakeFeed: () => background.wake('feed') }),
    onPosted: (name, outcome) => metrics.subscriptionPosts.inc({ name, outcome }),
    followsUp: options.followsUp ?? true,
    fetch,
    signal: stopping.signal,
  })
  const onStored = () => background.wake('inbox')
  // While the schema is older than this version, what is accepted is kept in the queue and nothing lands.
  const handover: Handover = { ...lander, reserve: (delivery) => background.isPrepared() && lander.reserve(delivery) }
  const acceptor = createAcceptor({ db: pools.accept.db, logger, handover, onFlush: pressure.note, onStored })

  const { isReady, ...readiness } = await watchReadiness({
    url: settings.databaseUrl,
    ...migrations,
    logger,
    signal: retired.signal,
  })
  const webhooks: WebhookDeps = {
    keys: () => keys,
    acceptor,
    maxBodyBytes: settings.maxBodyBytes,
    clock: hostClock,
    onRefused: quarantine.record,
    onFault: logFault(logger),
    onArrival: noteArrival({ arrivalLog, metrics, traces }),
  }
  const publicApp = createApp({ logger, trustProxy: settings.trustProxy, mount: (app) => mountWebhooks(app, webhooks) })
  const deps = {
    settings,
    db,
    lists: createListReader({ primary: db, standby: pools.standby?.db, logger }),
    keys: () => keys,
    clock,
    logger,
    metrics,
    registry,
    landing,
    submitter,
    background,
    awaited,
    onStored,
    startedAt: clock(),
    isReady,
    signal: stopping.signal,
  }
  // Its callers are behind other proxies than senders are, mostly behind none: whoever may name an address keeps that from signing in.
  const internalApp = createApp({
    logger,
    trustProxy: settings.internalTrustProxy,
    mount: (app) => app.use(options.internal(deps)),
  })

  const listeners: Listener[] = []
  const stop = async (graceMs: number, graceEnds = performance.now() + graceMs) => {
    retired.abort()
    stopping.abort()
    const cutTimer = setTimeout(() => cut.abort(), graceMs)
    await Promise.all(listeners.map((listener) => listener.close(graceMs)))
    await background.drain(Math.max(0, graceEnds - performance.now()))
    clearTimeout(cutTimer)
    await Promise.all([pools.close(), readiness.stop(), traces?.close(graceEnds - performance.now())])
  }
  try {
    const onClosed = (reason: string) => metrics.connectionsClosed.inc({ reason })
    const both = { keepAliveSeconds: settings.keepAliveSeconds, retired: retired.signal, logger }
    const outer = { host: settings.host, port: settings.port, setting: 'PORT', ...both }
    const inner = { host: settings.internalHost, port: settings.internalPort, setting: 'INTERNAL_PORT', ...both }
    listeners.push(
      await listen({ ...outer, handler: withHealth(publicApp, isReady), continues: true, halfOpen: true, onClosed }),
    )
    listeners.push(await listen({ ...inner, handler: withHealth(internalApp, isReady), onClosed }))
    const { databaseUrl: url, migrateOnStart, production } = settings
    const atStart = { url, ...migrations, program: 'receiver', migrateOnStart, production, logger }
    if (await prepareSchema(atStart, options.abandoned ?? stopping.signal)) {
      await sharedClock.begin()
      begin()
    }
    await readiness.lookNow()
  } catch (error) {
    await stop(0)
    throw error
  }
  const [outside, inside] = listeners.map(({ url }) => url)
  return { urls: { webhooks: `${outside}/webhooks`, console: `${inside}/` }, retire: () => retired.abort(), stop }
}
