import { setTimeout as delay } from 'node:timers/promises'
import type { Logger } from '../logger.ts'
import { migrate, isUpToDate, type Migrations } from './migrate.ts'
import { explainPostgres } from './words.ts'

/** What keeps a program from starting, as one line that says what to do. */
export class StartError extends Error {
  override name = 'StartError'
  code = 'start' as const
}

export type Waiting = {
  /** How long to wait for what waiting may mend; what it cannot mend ends at once. */
  waitMs: number
  /** Called at each try that failed. */
  say: (words: string) => void
  signal: AbortSignal
}

const pauseMs = 1000
const sayEveryMs = 30_000
/** For somebody who waits in front of a screen. */
const laptopLockWaitMs = 30_000

/** Tries until it works; throws a StartError for what waiting cannot mend, or when the wait is over. */
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
  /** As `mediadock migrate` knows it. */
  program: string
  migrateOnStart: boolean
  /** In production an orchestrator waits with us, for as long as it likes; a person wants to know at once. */
  production: boolean
  logger: Logger
}

/**
 * Settles when Postgres can be reached and the schema is up to date: true, or false
 * when the start was given up meanwhile. Throws a StartError for what waiting cannot mend.
 */
export async function prepareSchema(at: SchemaAtStart, signal: AbortSignal): Promise<boolean> {
  const { program, migrateOnStart, production, logger } = at
  const given = Promise.withResolvers<false>()
  const giveUp = () => given.resolve(false)
  if (signal.aborted) return false
  signal.addEventListener('abort', giveUp, { once: true })
  const say = sayingSeldom(logger, program)
  const waiting = { waitMs: production ? Number.POSITIVE_INFINITY : 0, say, signal }
  const missing = `the schema ${at.schema} is missing or older than this version, and MIGRATE_ON_START is false: run "mediadock migrate ${program}"`
  const prepare = async (): Promise<boolean> => {
    const locks = { lockWaitMs: production ? Number.POSITIVE_INFINITY : laptopLockWaitMs, onWait: say, signal }
    if (migrateOnStart)
      return migrated(at, (onMigrated) => untilReachable(() => migrate(at, { ...locks, onMigrated }), waiting))
    while (!signal.aborted) {
      if (await untilReachable(() => isUpToDate(at), waiting)) return true
      if (!production) throw new StartError(missing)
      say(missing)
      await delay(pauseMs, undefined, { signal }).catch(() => {})
    }
    return false
  }
  try {
    return await Promise.race([given.promise, prepare()])
  } catch (error) {
    if (signal.aborted) return false
    throw error
  } finally {
    signal.removeEventListener('abort', giveUp)
  }
}

/** True as soon as the migrations are in: indexes of large tables are made beside everything else, by the next start where that fails. */
async function migrated(
  { schema, logger }: SchemaAtStart,
  work: (onMigrated: () => void) => Promise<unknown>,
): Promise<true> {
  const { promise, resolve, reject } = Promise.withResolvers<true>()
  let isIn = false
  const onMigrated = () => {
    isIn = true
    resolve(true)
  }
  work(onMigrated).then(onMigrated, (error: unknown) => {
    if (isIn)
      logger.error(
        { err: error, schema },
        'an index could not be made: the next start, or mediadock migrate, tries again',
      )
    reject(error)
  })
  return promise
}

/** At once, and then twice a minute; what is new at once too. */
function sayingSeldom(logger: Logger, program: string): (words: string) => void {
  const since = performance.now()
  let last = ''
  let lastAt = Number.NEGATIVE_INFINITY
  return (words) => {
    const now = performance.now()
    if (words === last && now - lastAt < sayEveryMs) return
    last = words
    lastAt = now
    logger.warn(
      { program, reason: words, waited_seconds: Math.round((now - since) / 1000) },
      'not ready, waiting for Postgres',
    )
  }
}
