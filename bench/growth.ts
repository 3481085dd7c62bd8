import { addDeliveries, freezeStatistics } from './fill.ts'
import type { Figures } from './goals.ts'
import type { Load } from './load.ts'
import { connections, untilLanded, untilLogged, warmUp, withRig, type Rig } from './rig.ts'
import type { BenchServer } from './servers.ts'
import { bytesOnDisk } from './sustained.ts'
import { median, print, say, table } from './tables.ts'

export type GrowthSize = { sizes: readonly number[]; rounds: number; secondsPerRound: number }

/** From here on a size counts for the goal. */
const goalSize = 10_000_000
const unwatched = { logFile: '/dev/null' }

/**
 * Rates of two receivers on one server in turn, the one's database new, the other's filled to
 * each size with statistics from when it was as new, and what a delivery takes on disk.
 */
export async function benchGrowth(
  server: BenchServer,
  { sizes, rounds, secondsPerRound }: GrowthSize,
): Promise<Figures> {
  const figures: Figures = {}
  await withRig(server, unwatched, (empty) =>
    withRig(server, unwatched, async (filled) => {
      for (const rig of [empty, filled]) {
        await warmUp(rig)
        await untilLogged(rig.sql)
        await rig.sql`vacuum analyze`
        await freezeStatistics(rig.sql)
      }
      const rows: (string | number)[][] = []
      let size = 0
      for (const next of [0, ...sizes]) {
        const started = performance.now()
        if (next > size) await addDeliveries({ server, databaseUrl: filled.databaseUrl }, size, next)
        if (next > size) say(`filled to ${next} in ${Math.round((performance.now() - started) / 1000)} s`)
        size = next
        const stored = await bytesOnDisk(filled)
        const turns = await inTurns([empty, filled], rounds, secondsPerRound)
        const [atZero, atSize] = turns.loads
        const ratio = (pick: (one: Turn) => number) =>
          median((atSize ?? []).map((one, round) => pick(one) / pick(atZero?.[round] ?? one)))
        const middle = (pick: (one: Turn) => number) => median((atSize ?? []).map(pick))
        const landedRatio = ratio(({ landedPerSecond }) => landedPerSecond)
        rows.push([
          size.toLocaleString('en-US'),
          middle(({ perSecond }) => perSecond),
          ratio(({ perSecond }) => perSecond),
          middle(({ landedPerSecond }) => landedPerSecond),
          landedRatio,
          `${(stored / 2 ** 30).toFixed(2)} GiB`,
          turns.disk[1] ?? NaN,
          ...turns.pagesRead,
          ...turns.wal,
        ])
        if (size >= goalSize) figures.grown = landedRatio
        figures.diskToBody = Math.max(figures.diskToBody ?? 0, turns.disk[1] ?? NaN)
      }
      const columns = [
        'deliveries',
        'acknowledged/s',
        '÷ at 0',
        'acknowledged and landed/s',
        '÷ at 0',
        'on disk',
        'disk ÷ body of what came then',
        ...['new', 'filled'].map((which) => `pages read a delivery, ${which}`),
        ...['new', 'filled'].map((which) => `bytes of WAL a delivery, ${which}`),
      ]
      print(table(`Growth on ${server.words}`, columns, rows))
    }),
  )
  return figures
}

type Turn = { perSecond: number; landedPerSecond: number }
type Turns = { loads: Turn[][]; disk: number[]; pagesRead: number[]; wal: number[] }

/** Pages that the database read from the system, and bytes of the server's write-ahead log, since the beginning. */
async function readAndWritten({ sql }: Rig): Promise<[pages: number, wal: number]> {
  const [row] = await sql<{ pages: number; wal: number }[]>`
    select blks_read::float8 as pages, (pg_current_wal_insert_lsn() - '0/0')::float8 as wal
    from pg_stat_database where datname = current_database()`
  return [row?.pages ?? NaN, row?.wal ?? NaN]
}

/** As many as the one before suggests, as fast as they are taken, and the time until all of them are in results. */
async function inTurns(rigs: readonly Rig[], rounds: number, seconds: number): Promise<Turns> {
  const loads: Turn[][] = rigs.map(() => [])
  const bytes = await Promise.all(rigs.map(bytesOnDisk))
  const bodies = rigs.map(() => 0)
  const sums = rigs.map(() => ({ deliveries: 0, pages: 0, wal: 0 }))
  const requests = rigs.map(() => 10_000)
  for (let round = 0; round <= rounds; round += 1) {
    for (const [at, rig] of rigs.entries()) {
      const { generator, receiver, sql } = rig
      const count = requests[at] ?? 0
      const [pagesBefore, walBefore] = await readAndWritten(rig)
      const started = performance.now()
      const load: Load = await generator.run({ url: receiver.webhooksUrl, connections, requests: count })
      const sentSeconds = load.seconds
      const drained = performance.now()
      await untilLanded(sql)
      const landedPerSecond = count / (sentSeconds + (performance.now() - drained) / 1000)
      requests[at] = Math.ceil(load.perSecond * seconds)
      bodies[at] = (bodies[at] ?? 0) + load.bodyBytes
      // The first round only warms up: after a fill nothing is in memory.
      if (round > 0) loads[at]?.push({ perSecond: load.perSecond, landedPerSecond })
      await untilLogged(sql)
      const [pagesNow, walNow] = await readAndWritten(rig)
      const sum = sums[at]
      if (sum && round > 0) {
        sum.deliveries += count
        sum.pages += pagesNow - pagesBefore
        sum.wal += walNow - walBefore
      }
      say(
        `round ${round} of ${rounds}, ${at === 0 ? 'new' : 'filled'}: ${Math.round(landedPerSecond)}/s in ${Math.round((performance.now() - started) / 1000)} s`,
      )
    }
  }
  const after = await Promise.all(rigs.map(bytesOnDisk))
  return {
    loads,
    disk: after.map((end, at) => (end - (bytes[at] ?? NaN)) / (bodies[at] ?? NaN)),
    pagesRead: sums.map(({ pages, deliveries }) => pages / deliveries),
    wal: sums.map(({ wal, deliveries }) => wal / deliveries),
  }
}
