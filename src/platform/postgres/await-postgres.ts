import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import type { Logger } from '../logger.ts'
import { applyMigrations, createLargeIndexes, isUpToDate, type Migrations } from './migrate.ts'
import { explainPostgres } from './words.ts'

/** The program cannot start. The message is one line that says what to do. */
export class StartError extends Error {
  override name = 'StartError'
  code = 'start' as const
}

export type Waiting = {
  /** How long to retry after failures that may pass. Other failures end the wait at once. */
  waitMs: number
  say: (words: string) => void
  signal: AbortSignal
}

/** Each try opens a connection. A start notices Postgres at most this much later. */
const pauseMs = 1000

/** Retries until `work` succeeds. Throws a StartError if the failure cannot pass, or when the wait is over. */
export async function untilReachable<T>(work: () => Promise<T>, { waitMs, say, signal }: Waiting): Promise<T> {
  const until = performance.now() + waitMs
  for (;;) {
    try {
      return await work()
    } catch (error) {
      const failure = explainPostgres(error)
      if (failure === undefined) throw error
      if (!failure.passing || performance.now() >= until || signal.aborted)
        throw new StartError(failure.words, { cause: error })
      say(failure.words)
      await delay(pauseMs * (0.5 + Math.random()), undefined, { signal }).catch(() => {})
    }
  }
}

export type SchemaAtStart = Migrations & {
  /** The program's name for `mediadock migrate`. */
  program: string
  migrateOnStart: boolean
  /** In production the wait has no limit: the orchestrator decides. On a laptop, failures are reported at once. */
  production: boolean
  logger: Logger
}

/** Resolves to true once the schema is up to date, or to false if the start was aborted. */
export async function prepareSchema(at: SchemaAtStart, signal: AbortSignal): Promise<boolean> {
  const { program, migrateOnStart, production, logger } = at
  if (signal.aborted) return false
  const say = sayingSeldom(logger, program)
  const waiting = { waitMs: production ? Number.POSITIVE_INFINITY : 0, say, signal }
  const missing =
    `the schema ${at.schema} is missing or older than this version, and MIGRATE_ON_START is false: ` +
    `run "mediadock migrate ${program}"`
  const prepare = async (): Promise<boolean> => {
    // Short on a laptop, because a person waits.
    const locks = { lockWaitMs: production ? Number.POSITIVE_INFINITY : 30_000, onWait: say, signal }
    if (migrateOnStart) {
      await untilReachable(() => applyMigrations(at, locks), waiting)
      // In the background, since an index of a large table can take hours.
      const failed = 'an index could not be created: the next start or mediadock migrate will retry'
      untilReachable(() => createLargeIndexes(at, locks), waiting).catch((error: unknown) =>
        logger.error({ err: error, schema: at.schema }, failed),
      )
      return true
    }
    while (!signal.aborted) {
      if (await untilReachable(() => isUpToDate(at), waiting)) return true
      if (!production) throw new StartError(missing)
      say(missing)
      await delay(pauseMs, undefined, { signal }).catch(() => {})
    }
    return false
  }
  try {
    return await Promise.race([once(signal, 'abort').then(() => false), prepare()])
  } catch (error) {
    if (signal.aborted) return false
    throw error
  }
}

/** Logs a new reason at once, and a repeated one twice a minute. */
function sayingSeldom(logger: Logger, program: string): (words: string) => void {
  const since = performance.now()
  let last = ''
  let lastAt = Number.NEGATIVE_INFINITY
  return (words) => {
    const now = performance.now()
    if (words === last && now - lastAt < 30_000) return
    last = words
    lastAt = now
    const facts = { program, reason: words, waited_seconds: Math.round((now - since) / 1000) }
    logger.warn(facts, 'not ready, waiting for Postgres')
  }
}
