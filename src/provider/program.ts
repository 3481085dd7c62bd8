import os from 'node:os'
import { withDeadline } from '../platform/deadline.ts'
import { listen, type Listener } from '../platform/http/http.ts'
import { watchReadiness, withHealth } from '../platform/http/readiness.ts'
import type { Logger } from '../platform/logger.ts'
import { type Rounds, startLoop } from '../platform/loop.ts'
import { createPoster } from '../platform/outward/poster.ts'
import { diallingOf } from '../platform/outward/public-url.ts'
import { resolve } from '../platform/outward/resolver.ts'
import { prepareSchema } from '../platform/postgres/await-postgres.ts'
import { createPool, type Database } from '../platform/postgres/postgres.ts'
import { postgresTime as time } from '../platform/postgres/time.ts'
import type { RunningProgram } from '../platform/program.ts'
import { version } from '../platform/release.ts'
import { createIdentify } from './accounts/identify.ts'
import { type DemoKey, importDemoKeys } from './accounts/keys.ts'
import { createApi } from './api/api.ts'
import { createCurrentCatalog } from './catalog/catalog-file.ts'
import { createConsole } from './console/router.ts'
import { migrations } from './domain/migrations.ts'
import type { Environment } from './domain/schema.ts'
import { createEngineHost } from './engines/engine-host.ts'
import { runHousekeepingOnce } from './operating/housekeeping.ts'
import { createQueueWorker } from './queue/queue-worker.ts'
import { createStatusReader } from './queue/status-reader.ts'
import { createReferences } from './references/references.ts'
import type { ProviderSettings } from './settings.ts'
import { createDispatcher } from './webhooks/dispatcher.ts'
import { maxPerHost } from './webhooks/outbox-claims.ts'

export type { DemoKey } from './accounts/keys.ts'

export type ProviderOptions = {
  settings: ProviderSettings
  logger: Logger
  demoKeys?: readonly DemoKey[]
  /** Registers the function that reloads the catalog on SIGHUP. */
  onCatalogReload?: (reread: () => void) => void
  /** Aborts when the start is no longer wanted. Then startProvider stops waiting for Postgres and returns. */
  abandoned?: AbortSignal
}

/** Starts the provider. Queue worker and dispatcher begin when Postgres is reachable and migrated. */
export async function startProvider(options: ProviderOptions): Promise<RunningProgram> {
  const { settings, logger, demoKeys = [], abandoned } = options
  const catalog = createCurrentCatalog(settings, logger)
  if (settings.catalogFile !== undefined) options.onCatalogReload?.(catalog.reread)
  const { databaseUrl: url, databasePoolSize: max, secretKey, migrateOnStart, production } = settings
  // Separate connections for keys and statuses, so that submits that wait for a lock do not delay them.
  const lookupMax = Math.min(4, Math.floor(max / 2))
  const lookups = createPool({ url, max: lookupMax })
  const { db, close: closePool } = createPool({ url, max: max - lookupMax })
  const [retired, stopping, cut] = [new AbortController(), new AbortController(), new AbortController()]
  const { promise: prepared, resolve: begin } = Promise.withResolvers<void>()
  const background = startBackground({ settings, logger, db, prepared }, stopping.signal, cut.signal)
  const readiness = await watchReadiness({ url, ...migrations, logger, signal: retired.signal })

  const listeners: Listener[] = []
  const stop = async (graceMs: number) => {
    retired.abort()
    stopping.abort()
    const timer = setTimeout(() => cut.abort(new Error('the process is stopping')), graceMs)
    const ended = Promise.all([...listeners.map((listener) => listener.close(graceMs)), background.ended()])
    // Three more seconds for cut work to release its resources.
    await withDeadline(ended, graceMs + 3000, 'stopping the provider').catch((error: unknown) => {
      const effect = 'another process takes over its unfinished work when the leases end'
      logger.error({ err: error }, `the provider did not stop in time: ${effect}`)
    })
    clearTimeout(timer)
    background.abandon()
    await Promise.all([readiness.stop(), closePool(), lookups.close()])
  }
  try {
    const { ratePerKey: perKey, ratePerAccount: perAccount } = settings
    const fixed = { clock: hostClock, time, random, resolve }
    const identify = createIdentify({ db: lookups.db, limits: { perKey, perAccount }, ...fixed })
    const statusReader = createStatusReader(lookups.db)
    const { onQueued } = background
    const submitting = { db, settings, catalog: catalog.current, logger, statusReader, onQueued, ...fixed }
    const api = createApi({ ...submitting, identify })
    const consoleHandler = createConsole({ ...submitting, secretKey })
    const { keepAliveSeconds, host, port, consoleHost, consolePort } = settings
    const both = { keepAliveSeconds, retired: retired.signal, logger }
    const outer = { host, port, setting: 'PROVIDER_PORT', ...both }
    const inner = { host: consoleHost, port: consolePort, setting: 'PROVIDER_CONSOLE_PORT', ...both }
    listeners.push(await listen({ ...outer, handler: withHealth(api, readiness.isReady) }))
    listeners.push(await listen({ ...inner, handler: consoleHandler }))
    const atStart = { url, ...migrations, program: 'provider', migrateOnStart, production, logger }
    if (await prepareSchema(atStart, abandoned ?? stopping.signal)) {
      await importDemoKeys({ db, secretKey }, demoKeys)
      begin()
    }
  } catch (error) {
    await stop(0)
    throw error
  }
  const [api = '', developerConsole = ''] = listeners.map((listener) => listener.url)
  return { urls: { api, 'developer console': developerConsole }, retire: () => retired.abort(), stop }
}

/** The host's time, for signatures. Receivers compare it with their own clocks. */
const hostClock = () => new Date()
const random = () => Math.random()

type Shared = { settings: ProviderSettings; logger: Logger; db: Database }
/** Starts the roles beside the API after `prepared`. `ended` resolves when their work is done or cut. */
function startBackground(
  { settings, logger, db, prepared: after }: Shared & { prepared: Promise<void> },
  signal: AbortSignal,
  cut: AbortSignal,
) {
  const { mediaDir, mediaUrl, secretKey, webhookTimeoutMs: timeoutMs } = settings
  const engines = createEngineHost({ ffmpegPath: settings.engines?.ffmpeg_path, logger })
  const references = createReferences({ ...settings, resolve })
  const slots = { live: Math.max(2, os.availableParallelism()), sandbox: 200 }
  // Well below the 60 s in which a dead process's generation must be taken over. Renewed four times per lease.
  const job = { db, engines, references, mediaDir, mediaUrl, time, random, logger, leaseSeconds: 10 }
  const worker = createQueueWorker({ ...job, slots, onFree: () => workerLoop.wake() }, cut)
  const { webhookAllow: allow } = settings
  const judge = (url: URL) => diallingOf(url, allow)
  const poster = createPoster({ judge, resolve, timeoutMs, connectionsPerHost: maxPerHost })
  const pauses = { baseMs: settings.backoffBaseMs, capMs: settings.backoffCapMs }
  const userAgent = `mediadock-provider/${version}`
  const sending = { db, secretKey, poster, pauses, timeoutMs, userAgent, time, hostClock, random, logger }
  const dispatcher = createDispatcher({ ...sending, onFree: () => dispatcherLoop.wake() }, cut)

  const loopOf = (name: string, runOnce: Rounds['runOnce'], idleMs: number) =>
    startLoop({ name, runOnce, idleMs, after, logger, signal })
  // The pause between polls of the queue while this process submits nothing.
  const workerLoop = loopOf('queue worker', worker.runOnce, 500)
  // The loop varies its pauses by a quarter. The longest must not exceed the spec's interval.
  const dispatcherLoop = loopOf('dispatcher', dispatcher.runOnce, settings.dispatchIntervalMs * 0.8)
  const housekeep = () => runHousekeepingOnce({ db, time, hostClock, mediaDir })
  const loops = [workerLoop, dispatcherLoop, loopOf('housekeeping', housekeep, 60_000)]
  const ended = async () => {
    await Promise.all(loops.map((loop) => loop.done))
    await Promise.all([worker.drain(), dispatcher.drain()])
    await Promise.all([poster.close(), references.close()])
  }
  const onQueued = (environment: Environment) => {
    worker.note(environment)
    workerLoop.wake()
  }
  return { onQueued, ended, abandon: engines.close }
}
