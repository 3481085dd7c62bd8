import { serverNames, type ServerName } from './servers.ts'
import { table } from './tables.ts'

/** The goals in the order of the table. A goal is met if its figure is on the right side of the limit. */
const goals = {
  acknowledgedToInsert: ['acknowledged at 256 connections ÷ one insert per request', '≥', 1.5, ''],
  sustainedToInsert: ['acknowledged and landed, sustained ÷ one insert per request', '≥', 1.2, ''],
  cpuSustained: ['CPU of receiver and Postgres at the sustained rate, a delivery', '≤', 150, ' µs'],
  cpuAt1000: ['the same at 1,000 a second', '≤', 400, ' µs'],
  backlogToAcknowledged: ['landed from a backlog ÷ acknowledged', '≥', 1, ''],
  directP50: ['arrival to results at half of sustained, nothing to fetch, p50', '≤', 10, ' ms'],
  directP99: ['arrival to results at half of sustained, nothing to fetch, p99', '≤', 40, ' ms'],
  aloneP50: ['the same at 10 a second, p50', '≤', 5, ' ms'],
  fetchedP50: ['the same, everything fetched from a provider that answers in 20 ms, p50', '≤', 60, ' ms'],
  fetchedAtRateP50: ['the same at 100 a second, p50', '≤', 60, ' ms'],
  othersLate: ['one of 16 calls hangs: the results of the others, the last', '≤', 1, ' s'],
  ownFirstLink: ['one of 16 calls hangs: its own first link, the last', '≤', 2, ' s'],
  killed: ['kill -9 beside a second receiver: all that was acknowledged is in results after', '≤', 10, ' s'],
  providerBack: ['provider back: 95 % of what was incomplete is complete after', '≤', 30, ' s'],
  grown: ['rate at 10 M deliveries ÷ at 0', '≥', 0.9, ''],
  feedLagP99: ['landing to a reader of the feed at half of sustained, p99', '≤', 100, ' ms'],
  besideReaders: ['accepted and landed beside ten readers of everything ÷ without', '≥', 0.95, ''],
  diskToBody: ['bytes on disk ÷ bytes of body', '≤', 2.6, ''],
  walBytes: ['write-ahead log, a delivery', '≤', 3000, ' bytes'],
  peakRss: ['RSS of the receiver at the peak', '≤', 256, ' MB'],
  statusSeconds: ['`mediadock status`, wall time', '≤', 0.4, ' s'],
} as const satisfies Record<string, readonly [words: string, sense: '≥' | '≤', limit: number, unit: string]>

export type Goal = keyof typeof goals
export type Figures = Partial<Record<Goal, number>>

export function isMet(goal: Goal, figure: number): boolean {
  const [, sense, limit] = goals[goal]
  return sense === '≥' ? figure >= limit : figure <= limit
}

/** Each goal, met or MISSED with its figure on each server; what this run did not measure says so. */
export function goalsTable(measured: Partial<Record<ServerName, Figures>>, settings: readonly string[] = []): string {
  const servers = serverNames.filter((name) => measured[name])
  const cell = (goal: Goal, figure: number | undefined) => {
    if (figure === undefined) return 'not measured'
    // Nothing that could not be found is met.
    const shown = Number.isFinite(figure)
      ? `${Number(figure.toPrecision(3))}${goals[goal][3]}`
      : Number.isNaN(figure)
        ? 'none found'
        : 'no end'
    return isMet(goal, figure) ? `met: ${shown}` : `**MISSED**: ${shown}`
  }
  const all = Object.keys(goals) as Goal[]
  const rows = all
    .filter((goal) => servers.some((name) => measured[name]?.[goal] !== undefined))
    .map((goal) => {
      const [words, sense, limit, unit] = goals[goal]
      return [words, `${sense} ${limit}${unit}`, ...servers.map((name) => cell(goal, measured[name]?.[goal]))]
    })
  return table(['Goals', ...settings].join(', '), ['goal', 'wanted', ...servers], rows)
}
