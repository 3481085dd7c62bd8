import { setTimeout as delay } from 'node:timers/promises'
import type postgres from 'postgres'
import { startFeedReaders, type Read } from './feed-readers.ts'
import type { Figures } from './goals.ts'
import { connections, untilLanded, warmUp, withRig, type Rig } from './rig.ts'
import type { BenchServer } from './servers.ts'
import { findSustained, type SustainedSize } from './sustained.ts'
import { median, print, say, table } from './tables.ts'

export type FeedSize = SustainedSize & { rounds: number; requestsPerRound: number }

type Kinds = { sql: number; http: number }

const alone: readonly Kinds[] = [
  { sql: 1, http: 0 },
  { sql: 0, http: 1 },
]
const tenReaders: Kinds = { sql: 5, http: 5 }

/** How old a change is when a reader has it, at half of the sustained rate, and what ten readers cost those who land. */
export async function benchFeed(server: BenchServer, size: FeedSize): Promise<Figures> {
  return withRig(server, {}, async (rig) => {
    await warmUp(rig)
    const most = (
      await rig.generator.run({ url: rig.receiver.webhooksUrl, connections, requests: size.requestsPerRound })
    ).perSecond
    await untilLanded(rig.sql)
    const { confirmed } = await findSustained(rig, { ...size, most })
    const half = Math.round((confirmed?.offered ?? NaN) / 2)
    const lags: Read[] = []
    for (const kinds of confirmed ? alone : []) {
      say(`a reader by ${kinds.sql ? 'SQL' : 'HTTP'} at ${half}/s for ${size.latencySeconds} s`)
      const requests = half * size.latencySeconds
      const load = () => rig.generator.run({ url: rig.receiver.webhooksUrl, connections, requests, perSecond: half })
      lags.push(await whileRead(rig, kinds, load))
    }
    const ratios = await withAndWithout(rig, size)
    const rows = lags.map(({ p50Ms, p99Ms, changes }, nth) => [
      nth === 0 ? 'by SQL' : 'by long polls',
      half,
      changes[0],
      p50Ms,
      p99Ms,
    ])
    print(
      table(
        `From landing to a reader of the feed on ${server.words}`,
        ['', 'deliveries/s', 'changes', 'p50 ms', 'p99 ms'],
        rows,
      ),
    )
    print(
      table(
        `Accepted and landed beside ten readers of everything, five by SQL, five by long polls, on ${server.words}`,
        ['', 'a second'],
        [
          ['without a reader', median(ratios.map(({ without }) => without))],
          ['beside ten', median(ratios.map(({ beside }) => beside))],
          ['ratio', median(ratios.map(({ beside, without }) => beside / without))],
        ],
      ),
    )
    return {
      feedLagP99: confirmed ? Math.max(...lags.map(({ p99Ms }) => p99Ms)) : NaN,
      besideReaders: median(ratios.map(({ beside, without }) => beside / without)),
    }
  })
}

/** In turn, so that two neighbours saw the same machine: from the first request until all of them have landed. */
async function withAndWithout(rig: Rig, { rounds, requestsPerRound }: FeedSize) {
  const landedPerSecond = async () => {
    const started = performance.now()
    await rig.generator.run({ url: rig.receiver.webhooksUrl, connections, requests: requestsPerRound })
    await untilLanded(rig.sql)
    return requestsPerRound / ((performance.now() - started) / 1000)
  }
  const ratios: { without: number; beside: number }[] = []
  for (let round = 1; round <= rounds; round += 1) {
    say(`without and with ten readers, round ${round} of ${rounds}`)
    const without = await landedPerSecond()
    let beside = NaN
    await whileRead(rig, tenReaders, async () => (beside = await landedPerSecond()))
    ratios.push({ without, beside })
  }
  return ratios
}

/** Readers that begin at the end of the feed; each must have had exactly what the feed has since. */
async function whileRead(
  { databaseUrl, receiver, sql }: Rig,
  kinds: Kinds,
  work: () => Promise<unknown>,
): Promise<Read> {
  const after = await headOf(sql)
  const readers = await startFeedReaders({ databaseUrl, consoleUrl: receiver.consoleUrl, ...kinds, after })
  try {
    await work()
    await untilLanded(sql)
    const head = await headOf(sql)
    const read = await readers.readTo(head)
    const [row] = await sql<{ n: number }[]>`
      select count(*)::int as n from mediadock.feed where position > ${after} and position <= ${head}`
    const wrong = read.changes.filter((changes) => changes !== row?.n)
    if (wrong.length > 0) throw new Error(`of ${row?.n} changes a reader had ${wrong[0]}`)
    return read
  } finally {
    await readers.stop()
  }
}

const sequencedMs = 1000

/** The end of the feed, after all landed results have positions. Completions continue behind it. */
async function headOf(sql: postgres.Sql): Promise<number> {
  await delay(sequencedMs)
  const [row] = await sql<{ head: string }[]>`select coalesce(max(position), 0) as head from mediadock.feed`
  return Number(row?.head)
}
