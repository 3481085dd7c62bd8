import { isOutage } from '../../platform/postgres/errors.ts'
import { failureWords } from '../../platform/postgres/words.ts'
import { QueryTimeoutError } from '../queries/deadline.ts'
import { tellAway, type AlertDeps } from './alerts.ts'
import { noteIssues, noteOutage } from './issues.ts'
import { readProblems, type ProblemsOptions } from './read-problems.ts'

/** Shorter than this is a restart, or a failover. */
const awayAfterMs = 30_000
/**
 * The window of a signature is 300 s: a host whose clock is off by more than this is corrected long before it refuses.
 */
const toleratedClockMs = 5000
/** A role's round ends within 30 s, and the next one begins 12.5 s later at most. */
const settledAfterMs = 45_000

export type WatchDeps = AlertDeps & {
  /** The options of the readers at this moment. */
  read: () => Promise<ProblemsOptions>
  /** There may be something to tell. */
  onChanged: () => void
}

/**
 * One round of the role that keeps what is wrong as issues. While Postgres itself is away nothing can be kept:
 * that is told without it, by each replica for itself, and is an issue that is over once Postgres is back.
 */
export function createWatch(deps: WatchDeps): () => Promise<{ more: boolean }> {
  const { db, clock, logger, url, read, onChanged } = deps
  const tells = url !== undefined
  let awaySince: Date | undefined
  let isTold = false
  let failedAt: Date | undefined
  let isClockOff = false
  const compareClocks = (now: Date) => {
    const aheadMs = clock().getTime() - now.getTime()
    if (Math.abs(aheadMs) > toleratedClockMs === isClockOff) return
    isClockOff = !isClockOff
    const ahead_seconds = Math.round(aheadMs / 1000)
    if (isClockOff)
      logger.warn(
        { ahead_seconds },
        "this host's clock differs from Postgres's: signatures go by this host, correct it",
      )
    else logger.info({ ahead_seconds }, "this host's clock agrees with Postgres's again")
  }
  /** Roles that failed with Postgres have had no other round yet. */
  const readAgain = async (): Promise<ProblemsOptions> => {
    const isBack = failedAt === undefined || clock().getTime() - failedAt.getTime() > settledAfterMs
    return { ...(await read()), ...(!isBack && { failingRoles: [] }) }
  }
  return async () => {
    try {
      const options = await readAgain()
      const { now } = options
      compareClocks(now)
      const problems = await readProblems(db, options)
      if (awaySince !== undefined && clock().getTime() - awaySince.getTime() >= awayAfterMs)
        await noteOutage(db, { since: awaySince, now, tells: tells && isTold })
      awaySince = undefined
      isTold = false
      const { opened, closed } = await noteIssues(db, problems, { now, tells })
      if (opened + closed > 0) logger.info({ opened, closed }, 'what is wrong has changed')
      onChanged()
      return { more: false }
    } catch (error) {
      // A server that is frozen answers nothing, too.
      failedAt = clock()
      if (isOutage(error) || error instanceof QueryTimeoutError) {
        awaySince ??= clock()
        if (!isTold && clock().getTime() - awaySince.getTime() >= awayAfterMs) {
          isTold = true
          await tellAway(deps, { since: awaySince, words: failureWords(error) })
        }
      }
      throw error
    }
  }
}
