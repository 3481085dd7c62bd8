import { setTimeout as delay } from 'node:timers/promises'
import { it } from 'vitest'
import { preferredServer, withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { withBalancer } from './balancer.ts'
import { countBooks, untilInboxIsEmpty, watchEffects } from './books.ts'
import { limitMs, long, roundsOf } from './length.ts'
import { findBalancers } from './real-balancers.ts'
import { withReceiverProcess } from './receiver-process.ts'
import { longestSilenceMs, startLoad } from './steady-load.ts'
import { inTable } from './table.ts'

const { rounds, count, perSecond } = long
  ? { rounds: roundsOf(20), count: 3, perSecond: 500 }
  : { rounds: 1, count: 2, perSecond: 100 }
const graceSeconds = 5

// Short form: our own balancer shows the same as nginx and HAProxy, if one is installed.
it.skipIf(!long && (await findBalancers()).length > 0)(
  `restarting ${count} receivers one after the other behind a balancer, ${rounds} times, fails no delivery`,
  { timeout: 600_000 },
  async () => {
    await inTable(
      'rolling restart of three receivers behind a balancer at 500/s',
      'no failed delivery; exit 0 within the grace',
      async () => {
        const { url, sql } = await withTestDatabase(preferredServer)
        await watchEffects(sql)
        const settings = { SHUTDOWN_GRACE_SECONDS: String(graceSeconds), DATABASE_POOL_SIZE: '6' }
        const receivers = await Promise.all(Array.from({ length: count }, () => withReceiverProcess(url, settings)))
        const balancer = await withBalancer(receivers.map((receiver) => receiver.url))
        const load = startLoad({ urls: [balancer.url], perSecond, again: false })
        await delay(500)
        const codes: (number | null)[] = []
        let slowest = 0
        for (let round = 1; round <= rounds; round += 1) {
          for (const receiver of receivers) {
            const { code, tookMs } = await receiver.stop()
            codes.push(code)
            slowest = Math.max(slowest, tookMs)
            await receiver.start()
            await eventually(() => balancer.sends(receiver.url))
          }
        }
        const { acknowledged, refused, broken } = await load.end()
        await untilInboxIsEmpty(sql)
        const books = await countBooks(sql, acknowledged)
        const badEnds = codes.filter((code) => code !== 0)
        return {
          rounds,
          acknowledged: acknowledged.length,
          ...books,
          silenceMs: longestSilenceMs(acknowledged),
          measured: `${refused + broken} failed; ${codes.length} stops, ${badEnds.length} of them with another exit code than 0, the slowest ${(slowest / 1000).toFixed(1)} s`,
          met:
            books.lost === 0 &&
            books.doubled === 0 &&
            refused + broken === 0 &&
            badEnds.length === 0 &&
            slowest <= limitMs(graceSeconds * 1000),
        }
      },
    )
  },
)
