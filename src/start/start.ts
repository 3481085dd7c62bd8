import fs from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { type Config, ConfigError, isProduction, programs, readConfig } from '../config/config.ts'
import { DataDirInUseError } from '../laptop/data-lock.ts'
import { laptopEnvironment, type Local, openLocal } from '../laptop/local.ts'
import { welcome } from '../laptop/welcome.ts'
import { ListenError } from '../platform/http/http.ts'
import { stopOnUncaught } from '../platform/last-handler.ts'
import { createLogger, type Logger } from '../platform/logger.ts'
import { StartError } from '../platform/postgres/await-postgres.ts'
import { OtherHistoryError } from '../platform/postgres/migrate.ts'
import { explainPostgres } from '../platform/postgres/words.ts'
import type { RunningProgram } from '../platform/program.ts'
import type { ProcessEnvironment } from '../platform/settings.ts'
import type { Keys } from '../receiver/domain/keys.ts'
import type { ReceiverDeps } from '../receiver/program.ts'
import type { ReceiverSettings } from '../receiver/settings.ts'
import { parseKeys, withSources } from '../receiver/sources/keys.ts'

/** Exit codes: 0 stopped by a signal, 1 failed, 2 wrong usage, 78 invalid settings (EX_CONFIG). */
export type ExitCode = 0 | 1 | 2 | 78

/** Runs one program or both until a signal arrives. Returns the exit code. */
export async function start(what: string, environment: ProcessEnvironment): Promise<ExitCode> {
  const wanted = programs.filter((program) => what === 'all' || what === program)
  if (wanted.length === 0) return fail(2, `unknown program "${what}": start receiver, provider or all`)
  const env = laptopEnvironment(environment, wanted)
  const bootLogger = createLogger(env['LOG_LEVEL'] === 'silent' ? 'silent' : 'warn')
  const inTerminal = !isProduction(env) && [process.stdin, process.stdout, process.stderr].some(({ isTTY }) => isTTY)
  const stop = listenForStop({
    hangupStops: inTerminal && !env['GENERATION_KEYS_FILE'] && !env['SOURCES_FILE'] && !env['PROVIDER_CATALOG'],
    logger: bootLogger,
  })

  let local: Local
  try {
    // Check the settings first: an invalid one must not start a database server.
    readConfig(env, wanted, {
      databaseUrl: 'postgres://later',
      keys: '[{"name":"later","signing_secret":"later-with-other-keys","retired":true}]',
      secretKey: undefined,
    })
    local = await openLocal(env, { wanted, logger: bootLogger })
  } catch (error) {
    return explain(error)
  }
  try {
    const config = readConfig(env, wanted, local.defaults)
    return stop.isRequested() ? 0 : await run(config, local, stop)
  } catch (error) {
    return explain(error)
  } finally {
    await local.close()
  }
}

async function run(config: Config, local: Local, stopping: Stopping): Promise<ExitCode> {
  const logger = createLogger(config.logLevel)
  stopOnUncaught({ logger, stop: (reason) => stopping.request({ reason, interrupted: false, failed: true }) })
  const onEnded = (reason: unknown) => stopping.request({ reason: String(reason), interrupted: true, failed: true })
  local.ended.then(onEnded, onEnded)
  const running = await startPrograms(config, { local, logger, stopping })
  const urls: Record<string, string> = Object.assign({}, ...running.map((program) => program.urls))
  if (!stopping.isRequested()) logger.info({ urls }, 'started')
  const { demoKeys, isEmbedded } = local
  if (!config.production && !stopping.isRequested())
    process.stderr.write(welcome({ urls, demoKeys, settings: config.receiver, isEmbedded }))

  const stop = await stopping.requested
  logger.info({ reason: stop.reason }, 'stopping')
  const { shutdownGraceSeconds, drainSeconds } = (config.receiver ?? config.provider)!
  const graceMs = shutdownGraceSeconds * 1000
  // A person waits after Ctrl-C, so work gets less time.
  if (stop.interrupted) await shutDown(running, { graceMs: Math.min(graceMs, 3500), drainMs: 0 })
  else await shutDown(running, { graceMs, drainMs: drainSeconds * 1000 })
  logger.info('stopped')
  return stop.failed ? fail(1, stop.reason) : 0
}

/**
 * Starts the programs side by side. Each listens at once and becomes ready when Postgres is reachable. A stop, or a
 * program that fails to start, ends the wait of all.
 */
async function startPrograms(
  { provider, receiver }: Config,
  { local, logger, stopping }: { local: Local; logger: Logger; stopping: Stopping },
): Promise<RunningProgram[]> {
  const abandon = new AbortController()
  const giveUp = () => abandon.abort()
  stopping.requested.then(giveUp, giveUp)
  const shared = { logger, abandoned: abandon.signal }
  // Load only the wanted programs: a receiver does not need the provider's rendering packages.
  const wanted: (() => Promise<RunningProgram>)[] = []
  if (provider) {
    const { startProvider } = await import('../provider/program.ts')
    const { demoKeys } = local
    wanted.push(() => startProvider({ settings: provider, demoKeys, onCatalogReload: stopping.onHangup, ...shared }))
  }
  if (receiver) {
    const { startReceiver } = await import('../receiver/program.ts')
    const { internalRouter } = await import('../receiver/console/router.ts')
    const { slices } = await import('../receiver/slices.ts')
    const pages = await Promise.all(slices.map((slice) => slice.internal()))
    const internal = (deps: ReceiverDeps) => internalRouter(deps, pages)
    const onKeysReload = (replace: (keys: Keys) => void) => {
      if (receiver.keysFile !== undefined || receiver.sourcesFile !== undefined)
        stopping.onHangup(() => void readKeysAgain(receiver, replace, logger))
    }
    wanted.push(() => startReceiver({ settings: receiver, slices, internal, onKeysReload, ...shared }))
  }
  // Start after all are loaded, so that no start can fail while another program is still loading.
  const starts = wanted.map((one) => one())
  try {
    return await Promise.all(starts)
  } catch (error) {
    abandon.abort()
    const ended = await Promise.allSettled(starts)
    await Promise.all(ended.flatMap((one) => (one.status === 'fulfilled' ? [one.value.stop(0)] : [])))
    throw error
  }
}

/**
 * Fails the readiness check for `drainMs`, so that the load balancer notices. Then closes listeners, and ends or cuts
 * work in progress.
 */
async function shutDown(
  running: readonly RunningProgram[],
  { graceMs, drainMs }: { graceMs: number; drainMs: number },
): Promise<void> {
  for (const program of running) program.retire?.()
  await delay(drainMs)
  await Promise.all(running.map((program) => program.stop(graceMs - drainMs)))
}

type Stop = { reason: string; interrupted: boolean; failed: boolean }

type Stopping = {
  requested: Promise<Stop>
  request: (stop: Stop) => void
  isRequested: () => boolean
  /** Adds a file reader that runs on SIGHUP. */
  onHangup: (reread: () => void) => void
}

/**
 * Listens for signals from the first moment, so that Ctrl-C during the creation of PostgreSQL leaves nothing behind. On
 * a laptop, SIGHUP of a closing terminal stops the program. Otherwise SIGHUP reloads the files of keys and models, or
 * logs that there are none.
 */
function listenForStop({ hangupStops, logger }: { hangupStops: boolean; logger: Logger }): Stopping {
  const { promise: requested, resolve: request } = Promise.withResolvers<Stop>()
  let stopRequestedAt: number | undefined
  const onSignal = (signal: NodeJS.Signals) => {
    // A second signal stops at once.
    // `npm start` forwards a Ctrl-C that the terminal has sent already. Both count as one signal.
    if (stopRequestedAt !== undefined && performance.now() - stopRequestedAt > 500) process.exit(1)
    stopRequestedAt ??= performance.now()
    request({ reason: signal, interrupted: signal !== 'SIGTERM', failed: false })
  }
  const rereads: (() => void)[] = []
  const rereadAll = () => {
    for (const reread of rereads) reread()
    if (rereads.length > 0) return
    logger.warn(
      'SIGHUP changes nothing: this program has no file of keys, sources or models to read again. ' +
        'Restart to apply other settings.',
    )
  }
  const onTerminalClosed = () => {
    for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {})
    onSignal('SIGHUP')
  }
  process
    .on('SIGINT', onSignal)
    .on('SIGTERM', onSignal)
    .on('SIGHUP', () => (hangupStops ? onTerminalClosed() : rereadAll()))
  const onHangup = (reread: () => void) => void rereads.push(reread)
  return { requested, request, isRequested: () => stopRequestedAt !== undefined, onHangup }
}

/** Reloads the keys of all sources. An invalid file changes nothing. */
async function readKeysAgain(
  { keys: initial, keysFile, sourcesFile, mediaArchive }: ReceiverSettings,
  replace: (keys: Keys) => void,
  logger: Logger,
): Promise<void> {
  let file = keysFile
  try {
    let keys = keysFile === undefined ? initial : parseKeys(await fs.readFile(keysFile, 'utf8'))
    if (sourcesFile !== undefined) {
      file = sourcesFile
      keys = withSources(keys, await fs.readFile(sourcesFile, 'utf8'), mediaArchive)
    }
    replace(keys)
    logger.info({ keys: keys.all.map(({ name }) => name) }, 'keys read again')
  } catch (error) {
    logger.error({ err: error, file }, 'the file is invalid or unreadable: keeping the old keys')
  }
}

function explain(error: unknown): ExitCode {
  if (error instanceof ConfigError) return fail(78, error.message)
  if (error instanceof ListenError || error instanceof DataDirInUseError) return fail(1, error.message)
  if (error instanceof StartError || error instanceof OtherHistoryError) return fail(1, error.message)
  const words = explainPostgres(error)?.words
  return fail(1, words ?? (error instanceof Error ? (error.stack ?? error.message) : String(error)))
}

function fail(code: ExitCode, message: string): ExitCode {
  process.stderr.write(`mediadock: ${message}\n`)
  return code
}
