import { setTimeout as delay } from 'node:timers/promises'
import { isOutage } from '../../platform/postgres/errors.ts'
import { failureWords } from '../../platform/postgres/words.ts'
import { QueryTimeoutError } from '../queries/deadline.ts'
import { pollMs } from '../slice.ts'
import { tellAway, tellOnce, type AlertDeps } from './alerts.ts'
import { noteIssues, noteOutage } from './issues.ts'
import type { ProblemsOptions } from './numbers.ts'
import { readProblems } from './problems.ts'
import { readingOptions, type ReadingDeps } from './reading.ts'

type OnCallRolesDeps = ReadingDeps &
  Pick<AlertDeps, 'clock' | 'logger' | 'fetch' | 'signal'> & { after: Promise<void>; wakeAlerts: () => void }

/** Returns two roles: one keeps problems as issues, the other posts notices of them to `ALERT_WEBHOOK_URL`. */
export function onCallRoles(deps: OnCallRolesDeps) {
  const { settings, after, signal, wakeAlerts } = deps
  const alerting = { ...deps, url: settings.alertWebhookUrl, from: new URL(settings.webhookPublicUrl).host }
  // The role arrival-partitions makes its partitions first, since readers of the log would hold locks that it needs.
  const pauseAtStart = () => delay(3000, undefined, { signal }).catch(() => {})
  const watch = createWatch({ ...alerting, read: () => readingOptions(deps), onChanged: wakeAlerts })
  return {
    alerts: { runOnce: () => tellOnce(alerting), idleMs: pollMs },
    issues: { runOnce: watch, idleMs: 10_000, after: after.then(pauseAtStart) },
  }
}

/** A shorter outage is a restart or a failover. */
const awayAfterMs = 30_000

export type WatchDeps = AlertDeps & {
  /** Returns the present options of readProblems(): the time, and the state of this process. */
  read: () => Promise<ProblemsOptions>
  /** Called after each round: a notice may be due. */
  onChanged: () => void
}

/**
 * Returns one round of the role that keeps problems as issues. While Postgres is away, no issue can be written. After
 * 30 s each replica posts its own notice instead. Once Postgres is back, the outage is recorded as a closed issue.
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
    // Well below the 300 s by which the time of a signature may differ, so that a clock can be corrected in time.
    if (Math.abs(aheadMs) > 5000 === isClockOff) return
    isClockOff = !isClockOff
    const ahead_seconds = Math.round(aheadMs / 1000)
    if (isClockOff)
      logger.warn(
        { ahead_seconds },
        "this host's clock differs from Postgres's: compare both with a time server. " +
          'This host checks the time of signatures by its own clock',
      )
    else logger.info({ ahead_seconds }, "this host's clock agrees with Postgres's again")
  }
  /** Roles that failed during the outage need another round before their failures count again. */
  const readAgain = async (): Promise<ProblemsOptions> => {
    // A round of a role ends within 30 s, and the next begins at most 12.5 s later.
    const isBack = failedAt === undefined || clock().getTime() - failedAt.getTime() > 45_000
    return { ...(await read()), ...(!isBack && { failingRoles: [] }) }
  }
  return async () => {
    try {
      const options = await readAgain()
      const { now } = options
      compareClocks(now)
      const problems = await readProblems(db, options)
      const since = awaySince
      const isOutageOver = since !== undefined && clock().getTime() - since.getTime() >= awayAfterMs
      if (isOutageOver) await noteOutage(db, { since, now, tells: tells && isTold })
      awaySince = undefined
      isTold = false
      // The next round reads the problems again, since the recorded outage explains some.
      if (isOutageOver) return { more: true }
      const { opened, closed } = await noteIssues(db, problems, { now, tells })
      if (opened + closed > 0) logger.info({ opened, closed }, 'issues opened or closed')
      onChanged()
      return { more: false }
    } catch (error) {
      // A query also times out when the server is frozen.
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
