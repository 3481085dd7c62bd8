import type { Express, Router } from 'express'
import { createApp } from '../platform/http/app.ts'
import { listen, type Listener } from '../platform/http/http.ts'
import { watchReadiness, withHealth } from '../platform/http/readiness.ts'
import { prepareSchema } from '../platform/postgres/await-postgres.ts'
import { createPressure } from '../platform/pressure.ts'
import type { RunningProgram } from '../platform/program.ts'
import {
  openBase,
  openCalls,
  openHandOver,
  landingDeps,
  openLogs,
  openPublicApp,
  startSlices,
  type Base,
  type BaseOptions,
  type Calls,
} from './assembly.ts'
import { startBackground, type Background } from './background.ts'
import { migrations } from './domain/migrations.ts'
import type { LandingDeps } from './landing/land-or-put-off.ts'
import { createListReader, type ListReader } from './queries/list-reader.ts'
import { createAwaited, type Awaited } from './reconciling/awaited.ts'
import { openTraces } from './traces/traces.ts'

/** Everything that the internal listener's pages and API may use. */
export type ReceiverDeps = Pick<
  Base,
  'settings' | 'slices' | 'db' | 'keys' | 'clock' | 'time' | 'logger' | 'metrics' | 'registry'
> &
  Pick<Calls, 'submitter' | 'providerReads' | 'cancel'> & {
    /** Reads lists, which may come from a standby. */
    lists: ListReader
    /** The dependencies of landing, for replays. */
    landing: LandingDeps
    background: Background
    /** Records the requests whose results callers wait for. */
    awaited: Awaited
    /** Wakes the role that claims deliveries. */
    onStored: () => void
    startedAt: Date
    isReady: () => boolean
    signal: AbortSignal
  }

export type ReceiverOptions = BaseOptions & {
  /** The pages and API of the internal listener. */
  internal: (deps: ReceiverDeps) => Router
  /** Aborts when the start is cancelled: waiting for Postgres ends, and everything that was started can be stopped. */
  abandoned?: AbortSignal
  /** False to poll only in runs of the reconciler. */
  followsUp?: boolean
  /** False to ask for no key's account: each key then has only its own limit. */
  asksForAccounts?: boolean
}

/**
 * Starts the receiver. Both listeners start at once. The background roles start when Postgres is reachable and the
 * schema is up to date. Until then the receiver is alive and not ready.
 */
export async function startReceiver(options: ReceiverOptions): Promise<RunningProgram> {
  const { settings, logger } = options
  const traces = await openTraces(settings, logger)
  const base = openBase(options, traces)
  const { pools, retired, stopping, cut } = base
  const calls = openCalls(base)
  const landing = landingDeps(base)
  const logs = openLogs(base)
  const pressure = createPressure()
  const handOver = openHandOver(base, landing, pressure)
  const awaited = createAwaited()
  const { promise: prepared, resolve: begin } = Promise.withResolvers<void>()
  const background = startBackground({
    ...base,
    ...calls,
    ...logs,
    cut: cut.signal,
    prepared,
    running: await startSlices(base, { fetchResult: calls.fetcher, pressure, after: prepared }),
    landing,
    handOver,
    pressure,
    awaited,
    followsUp: options.followsUp ?? true,
    asksForAccounts: options.asksForAccounts ?? true,
    signal: stopping.signal,
  })
  base.roles.wake = background.wake
  base.roles.wakeFollowUps = background.wakeFollowUps
  const ready = await watchReadiness({ url: settings.databaseUrl, ...migrations, logger, signal: retired.signal })
  const publicApp = openPublicApp(base, { ...calls, handOver, pressure, logs, isPrepared: background.isPrepared })
  const deps: ReceiverDeps = {
    ...base,
    ...calls,
    lists: createListReader({ primary: base.db, standby: pools.standby?.db, logger }),
    landing,
    background,
    awaited,
    onStored: () => background.wake('inbox'),
    startedAt: base.clock(),
    isReady: ready.isReady,
    signal: stopping.signal,
  }
  // Callers of the internal listener use other proxies than senders, or none.
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
    if (await prepareReceiver(options, stopping.signal)) begin()
    await ready.lookNow()
  } catch (error) {
    await stop(0)
    throw error
  }
  const [outside, inside] = listeners.map(({ url }) => url)
  return { urls: { webhooks: `${outside}/webhooks`, console: `${inside}/` }, retire: () => retired.abort(), stop }
}

type Apps = { publicApp: Express; internalApp: Express; isReady: () => boolean }

/** Opens both listeners. Each is added to `listeners` as soon as it listens, so that a later failure can close it. */
async function listenOn(listeners: Listener[], base: Base, { publicApp, internalApp, isReady }: Apps): Promise<void> {
  const { settings, logger, metrics, retired } = base
  const onClosed = (reason: string) => metrics.connectionsClosed.inc({ reason })
  const both = { keepAliveSeconds: settings.keepAliveSeconds, retired: retired.signal, logger, onClosed }
  const outer = { host: settings.host, port: settings.port, setting: 'PORT', ...both }
  const inner = { host: settings.internalHost, port: settings.internalPort, setting: 'INTERNAL_PORT', ...both }
  listeners.push(await listen({ ...outer, handler: withHealth(publicApp, isReady), continues: true, halfOpen: true }))
  listeners.push(await listen({ ...inner, handler: withHealth(internalApp, isReady) }))
}

/** Waits for Postgres and the schema. Returns false if the start was cancelled. */
function prepareReceiver({ settings, logger, abandoned }: ReceiverOptions, stopping: AbortSignal): Promise<boolean> {
  const { databaseUrl: url, migrateOnStart, production } = settings
  const atStart = { url, ...migrations, program: 'receiver', migrateOnStart, production, logger }
  return prepareSchema(atStart, abandoned ?? stopping)
}
