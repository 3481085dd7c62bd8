import { setTimeout as delay } from 'node:timers/promises'
import type postgres from 'postgres'
import { expect, it } from 'vitest'
import { preferredServer, withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { countBooks, untilAllLanded, untilInboxIsEmpty, watchEffects } from './books.ts'
import { limitMs, long, roundsOf } from './length.ts'
import { withReceiverProcess } from './receiver-process.ts'
import { longestSilenceMs, startLoad, type Acknowledged } from './steady-load.ts'
import { inTable } from './table.ts'

// Short: two share what three have each, and so have as much under way when one is killed.
const { count, kills, everyMs, perSecond, wanted } = long
  ? { count: 3, kills: roundsOf(100), everyMs: 1000, perSecond: 350, wanted: roundsOf(50_000) }
  : { count: 2, kills: 2, everyMs: 700, perSecond: 250, wanted: 500 }
const landedWithinMs = limitMs(10_000)

it(
  `kill -9 of one of ${count} receivers, ${kills} times under load, loses and doubles nothing`,
  { timeout: 900_000 },
  async () => {
    await inTable(
      `\`kill -9\` of one of ${long ? 'three' : 'two'} receivers under load`,
      `0 lost, 0 doubled of ≥ ${wanted.toLocaleString('en')}; landed by another within 10 s`,
      async () => {
        const { url, sql } = await withTestDatabase(preferredServer)
        await watchEffects(sql)
        const receivers = await Promise.all(
          Array.from({ length: count }, () => withReceiverProcess(url, { DATABASE_POOL_SIZE: '6' })),
        )
        const load = startLoad({ urls: receivers.map((receiver) => receiver.url), perSecond, atOnce: 64, pauseMs: 20 })
        const killed: { url: string; at: number }[] = []
        for (let kill = 0; kill < kills; kill += 1) {
          await delay(everyMs)
          const victim = receivers[kill % receivers.length] ?? expect.fail()
          await victim.kill()
          killed.push({ url: victim.url, at: Date.now() })
          // The last one stays dead: another lands what it had in flight.
          if (kill + 1 < kills) await victim.start()
        }
        await eventually(() => load.tally.acknowledged.length >= wanted)
        const { acknowledged, broken } = await load.end()
        // Long form: leases expire in real time. Short form: the ends of leases are brought forward.
        await (long ? untilAllLanded(sql, landedWithinMs + 5000) : untilInboxIsEmpty(sql))
        const books = await countBooks(sql, acknowledged)
        const slowest = await slowestLanding(sql, acknowledged, killed)
        return {
          rounds: kills,
          acknowledged: acknowledged.length,
          ...books,
          silenceMs: longestSilenceMs(acknowledged),
          measured: `landed within ${(slowest / 1000).toFixed(1)} s of the kill; ${broken} connections broken`,
          met:
            books.lost === 0 &&
            books.doubled === 0 &&
            acknowledged.length >= wanted &&
            slowest <= landedWithinMs &&
            broken >= kills,
        }
      },
    )
  },
)

/** Of all that a receiver had acknowledged when it was killed: how long after the kill the last one landed. */
async function slowestLanding(
  sql: postgres.Sql,
  acknowledged: readonly Acknowledged[],
  killed: readonly { url: string; at: number }[],
): Promise<number> {
  const landed = new Map(
    (
      await sql<
        { request_id: string; at: Date }[]
      >`select request_id, landed_at as at from mediadock.results where landed_at is not null`
    ).map((row) => [row.request_id, row.at.getTime()]),
  )
  let slowest = 0
  for (const { delivery, url, at } of acknowledged) {
    const kill = killed.find((one) => one.url === url && one.at >= at)
    if (kill) slowest = Math.max(slowest, (landed.get(delivery.requestId) ?? Infinity) - kill.at)
  }
  return slowest
}
