import path from 'node:path'
import { migrate } from '../src/platform/postgres/migrate.ts'
import { startExpressProcess, startStripeProcess, type Contender } from './contenders.ts'
import type { Figures } from './goals.ts'
import type { Load } from './load.ts'
import { connections as crowd, untilLanded, withRig, type Rig } from './rig.ts'
import type { BenchServer } from './servers.ts'
import { median, print, say, table } from './tables.ts'

export type ThroughputSize = { rounds: number; secondsPerRound: number; crowds: readonly number[] }

type Row = { name: ContenderName; connections: number; rounds: Load[] }

const contenderNames = [
  'receiver',
  'Express + HMAC, no database',
  'Express + HMAC, one insert per request',
  'stripe-sync-engine',
] as const
type ContenderName = (typeof contenderNames)[number]

const warmUpRequests = 15_000

/** How fast deliveries are acknowledged, beside what HTTP alone costs and beside the obvious way of storing them. */
export async function benchThroughput(server: BenchServer, size: ThroughputSize): Promise<Figures> {
  return withRig(server, {}, async (rig) => {
    const express = await startExpressProcess()
    const insert = await startInsertContender(server)
    const stripe = await startStripeContender(server)
    try {
      const contenders: Record<ContenderName, Contender> = {
        receiver: rig.receiver,
        'Express + HMAC, no database': express,
        'Express + HMAC, one insert per request': insert,
        'stripe-sync-engine': stripe,
      }
      const rows = await measureThroughput(rig, contenders, size)
      print(report(server, rows))
      const at = (name: ContenderName) => rows.find((row) => row.name === name && row.connections === crowd)
      const [receiver, , inserting] = contenderNames.map(at)
      return receiver && inserting ? { acknowledgedToInsert: medianRatio(receiver, inserting) } : {}
    } finally {
      await express.stop()
      await insert.stop()
      await stripe.stop()
    }
  })
}

/** Express with one insert per request, into another database of the same server with the same tables and indexes. */
export async function startInsertContender(server: BenchServer): Promise<Contender> {
  const url = await server.createDatabase()
  await migrate({ url, schema: 'mediadock', folder: path.resolve(import.meta.dirname, '../drizzle/receiver') })
  return withItsDatabase(server, url, await startExpressProcess(url))
}

async function startStripeContender(server: BenchServer): Promise<Contender> {
  const url = await server.createDatabase()
  return withItsDatabase(server, url, await startStripeProcess(url))
}

const withItsDatabase = (server: BenchServer, url: string, contender: Contender): Contender => ({
  ...contender,
  stop: async () => {
    await contender.stop()
    await server.dropDatabase(url)
  },
})

/**
 * Runs the contenders in turn (A B C A B C …), so that other work of the machine affects all of them. The previous round
 * determines the number of requests of the next.
 */
async function measureThroughput(
  { generator, sql }: Rig,
  contenders: Record<ContenderName, Contender>,
  { rounds, secondsPerRound, crowds }: ThroughputSize,
): Promise<Row[]> {
  const rows: Row[] = []
  for (const connections of crowds) {
    const turns = contenderNames.map((name) => ({
      url: contenders[name].webhooksUrl,
      requests: warmUpRequests,
      row: { name, connections, rounds: [] as Load[] },
    }))
    rows.push(...turns.map(({ row }) => row))
    for (let round = 0; round <= rounds; round += 1) {
      say(`acknowledged at ${connections} connections, round ${round} of ${rounds}`)
      for (const turn of turns) {
        const kind = turn.row.name === 'stripe-sync-engine' ? 'stripe' : 'direct'
        const load = await generator.run({ url: turn.url, connections, requests: turn.requests, kind })
        turn.requests = Math.ceil(load.perSecond * secondsPerRound)
        // The first round only warms up.
        if (round > 0) turn.row.rounds.push(load)
        await untilLanded(sql)
      }
    }
  }
  return rows
}

/** The median of round-by-round ratios: two neighbours in time saw the same machine. */
function medianRatio(of: Row, to: Row): number {
  return median(of.rounds.map(({ perSecond }, round) => perSecond / (to.rounds[round]?.perSecond ?? NaN)))
}

function report({ words }: BenchServer, rows: readonly Row[]): string {
  const lines = rows.map((row) => {
    const middle = (pick: (load: Load) => number) => median(row.rounds.map(pick))
    const receiver = rows.find(({ name, connections }) => name === 'receiver' && connections === row.connections)
    return [
      row.connections,
      row.name,
      middle((load) => load.perSecond),
      middle((load) => load.p50Ms),
      middle((load) => load.p99Ms),
      row.name === 'receiver' || !receiver ? '' : medianRatio(receiver, row),
      middle((load) => (load.cpuSeconds / load.acknowledged) * 1e6),
    ]
  })
  const columns = [
    'connections',
    '',
    'acknowledged/s',
    'p50 ms',
    'p99 ms',
    'receiver ÷ it',
    'generator, µs of CPU each',
  ]
  return table(`Acknowledged on ${words}`, columns, lines)
}
