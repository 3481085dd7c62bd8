import type { FailingRole } from '../../platform/loop.ts'
import type { GuessLimit } from '../../platform/pages/guess-limit.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import { readTime, type SharedTime } from '../../platform/postgres/time.ts'
import type { Keys } from '../domain/keys.ts'
import type { Problem } from '../domain/problem.ts'
import { countParked } from '../gauges/inbox-depth.ts'
import { newestArrivals } from '../queries/arrivals.ts'
import { readWithin } from '../queries/deadline.ts'
import { openIssues } from '../queries/issues.ts'
import { calmSince, latestResults } from '../queries/stats.ts'
import { readCounters } from '../queries/trouble.ts'
import type { ReceiverSettings } from '../settings.ts'
import type { Slice } from '../slice.ts'
import { readNumbers, type ProblemsOptions } from './numbers.ts'
import { problemsOf } from './problems.ts'

export type ReadingDeps = {
  settings: ReceiverSettings
  background: {
    silentAfterSeconds: number | undefined
    guesses: GuessLimit
    failingRoles: () => readonly FailingRole[]
  }
  keys: () => Keys
  db: Database
  time: SharedTime
  startedAt: Date
  slices: readonly Slice[]
}

/** The options of the on-call readers: Postgres's time, the settings and the state of this process. */
export async function readingOptions({ settings, background, keys, db, time, startedAt, slices }: ReadingDeps) {
  const now = await readWithin(db, (tx) => readTime(tx, time))
  return {
    ...settings,
    now,
    silentAfterSeconds: background.silentAfterSeconds,
    failingRoles: background.failingRoles(),
    startedAt,
    keys: keys(),
    limited: background.guesses.limited(),
    readSlices: (tx: Executor) => sliceProblems(tx, slices, { settings, now }),
  }
}

/** Returns the problems of all slices, in the order of the slices. */
export async function sliceProblems(
  tx: Executor,
  slices: readonly Slice[],
  at: Parameters<Slice['problems']>[1],
): Promise<Problem[]> {
  const problems: Problem[] = []
  for (const slice of slices) problems.push(...(await slice.problems(tx, at)))
  return problems
}

export type Now = Awaited<ReturnType<typeof readNow>>

/** Reads the data of the first page on one connection. Pages ask for it every few seconds, so nothing is read twice. */
export async function readNow(db: Database, options: ProblemsOptions) {
  return readWithin(db, async (tx) => {
    const numbers = await readNumbers(tx, options)
    const { recent, inbox, overdue, reconciler, keys, giveUps } = numbers
    const problems = problemsOf(numbers)
    const issues = await openIssues(tx, options.now)
    const muted = new Set(issues.flatMap(({ cause, state }) => (state === 'muted' ? [cause] : [])))
    const wrong = problems.filter(({ cause, severity }) => severity !== 'notice' && !muted.has(cause))
    const critical = wrong.filter(({ severity }) => severity === 'critical')
    return {
      at: options.now,
      problems,
      /** The same problems as issues, with their start and their mute. */
      issues,
      /** Since when nothing has been wrong; undefined while there is a problem. */
      calm_since: problems.length === 0 ? await calmSince(tx, options.now) : undefined,
      recent,
      pending: inbox.pending,
      oldest_seconds: inbox.oldestSeconds,
      parked: await countParked(tx),
      overdue,
      backlog: reconciler.backlog,
      keys,
      give_ups: giveUps,
      // The counters of the navigation. `issues` counts problems, since a new problem becomes an issue a little later.
      counters: { ...(await readCounters(tx, options)), issues: wrong.length, critical: critical.length },
      arrivals: await newestArrivals(tx, 10),
      results: await latestResults(tx, 6),
    }
  })
}
