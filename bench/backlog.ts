import { addBacklog } from './fill.ts'
import type { Figures } from './goals.ts'
import { connections, untilLanded, warmUp, withRig } from './rig.ts'
import type { BenchServer } from './servers.ts'
import { median, print, say, table } from './tables.ts'

export type BacklogSize = { deliveries: number; rounds: number }

/** How fast a receiver that has just been started empties a full inbox, beside what it acknowledges. */
export async function benchBacklog(server: BenchServer, { deliveries, rounds }: BacklogSize): Promise<Figures> {
  return withRig(server, {}, async (rig) => {
    const { sql, databaseUrl, generator } = rig
    await warmUp(rig)
    const acknowledged: number[] = []
    const landed: number[] = []
    let { receiver } = rig
    for (let round = 1; round <= rounds; round += 1) {
      say(`an inbox of ${deliveries}, round ${round} of ${rounds}`)
      acknowledged.push((await generator.run({ url: receiver.webhooksUrl, connections, requests: 20_000 })).perSecond)
      await untilLanded(sql)
      await receiver.stop()
      await addBacklog({ server, databaseUrl }, deliveries)
      const [before] = await sql<{ at: Date }[]>`select now() as at`
      receiver = await rig.startReceiver()
      await untilLanded(sql)
      const [row] = await sql<{ n: number; seconds: number }[]>`
        -- All but the first batch, over the time between them: starting is not part of it.
        with batch as (select landed_at, count(*) as n from mediadock.results where landed_at >= ${before?.at ?? new Date()} group by landed_at)
        select (sum(n) - (array_agg(n order by landed_at))[1])::int as n, extract(epoch from max(landed_at) - min(landed_at))::float8 as seconds from batch`
      landed.push((row?.n ?? NaN) / (row?.seconds ?? NaN))
    }
    const ratio = median(landed.map((rate, round) => rate / (acknowledged[round] ?? NaN)))
    const rows = [
      [`landed a second, from an inbox of ${deliveries}`, median(landed)],
      [`acknowledged a second, ${connections} connections`, median(acknowledged)],
      ['ratio', ratio],
    ]
    print(table(`From a backlog on ${server.words}`, ['', ''], rows))
    return { backlogToAcknowledged: ratio }
  })
}
