import type { Database } from '../../platform/postgres/postgres.ts'
import { countParked } from '../gauges/inbox-depth.ts'
import { newestArrivals } from '../queries/arrivals.ts'
import { readCounters } from '../queries/counters.ts'
import { readWithin } from '../queries/deadline.ts'
import { openIssues } from '../queries/issues.ts'
import { calmSince } from '../queries/recent.ts'
import { latestResults } from '../queries/stats.ts'
import { readNumbers, type ProblemsOptions } from './numbers.ts'
import { problemsOf } from './problems.ts'

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
