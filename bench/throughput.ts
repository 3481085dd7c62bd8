import { setTimeout as delay } from 'node:timers/promises'
import type postgres from 'postgres'
import type { Contender } from './contenders.ts'
import type { LoadGenerator, Measured } from './load.ts'

export type Row = { name: string; connections: number; rounds: Measured[] }

export type ThroughputOptions = {
  /** In the order in which they take their turns. */
  contenders: ReadonlyMap<string, Contender>
  generator: LoadGenerator
  /** The receiver's database, to see when it has landed what it acknowledged. */
  sql: postgres.Sql
  rounds: number
  secondsPerRound: number
}

const warmUpRequests = 15_000
const crowds = [64, 256]

/**
 * Rounds taken in turn (A B C A B C …), so that whatever else the machine does
 * falls on all of them; each round is as many requests as the one before
 * suggests for its length.
 */
export async function measureThroughput(options: ThroughputOptions): Promise<Row[]> {
  const { contenders, generator, sql, rounds, secondsPerRound } = options
  const rows: Row[] = []
  for (const connections of crowds) {
    const turns = [...contenders].map(([name, { webhooksUrl }]) => ({
      url: webhooksUrl,
      requests: warmUpRequests,
      row: { name, connections, rounds: [] as Measured[] },
    }))
    rows.push(...turns.map(({ row }) => row))
    for (let round = 0; round <= rounds; round += 1) {
      for (const turn of turns) {
        const measured = await generator.run({ url: turn.url, connections, requests: turn.requests })
        turn.requests = Math.ceil(measured.perSecond * secondsPerRound)
        // The first round only warms up.
        if (round > 0) turn.row.rounds.push(measured)
        await untilLanded(sql)
      }
    }
  }
  return rows
}

/** What the receiver still has to land must not burden the next turn. */
async function untilLanded(sql: postgres.Sql): Promise<void> {
  while (true) {
    const [row] = await sql`select exists (select from mediadock.inbox) as waiting`
    if (!row?.['waiting']) return
    await delay(100)
  }
}

/** The middle one of the rounds, figure by figure. */
export function medianOf(rounds: readonly Measured[]): Measured {
  const middle = (pick: (measured: Measured) => number) => median(rounds.map(pick))
  return { perSecond: middle((m) => m.perSecond), p50Ms: middle((m) => m.p50Ms), p99Ms: middle((m) => m.p99Ms) }
}

/** The median of round-by-round ratios: two neighbours in time saw the same machine. */
export function medianRatio(of: Row, to: Row): number {
  return median(of.rounds.map(({ perSecond }, round) => perSecond / (to.rounds[round]?.perSecond ?? NaN)))
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  const half = Math.floor(sorted.length / 2)
  return sorted.length % 2 === 1 ? (sorted[half] ?? NaN) : ((sorted[half - 1] ?? NaN) + (sorted[half] ?? NaN)) / 2
}
