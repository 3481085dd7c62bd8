import { setTimeout as delay } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { preferredServer, withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { countBooks, untilInboxIsEmpty, watchEffects } from './books.ts'
import { limitMs, long, roundsOf } from './length.ts'
import { withReceiverHere, withReceiverProcess } from './receiver-process.ts'
import { makeDeliveries, withSender } from './sender.ts'
import { firstAfter, longestSilenceMs, startLoad } from './steady-load.ts'
import { inTable } from './table.ts'

const rounds = long ? roundsOf(3) : 1
// Short: while Postgres is read-only, each waiting delivery is sent ten times a second.
const { perSecond, atOnce } = long ? { perSecond: 200, atOnce: 256 } : { perSecond: 50, atOnce: 16 }
const wellWithinMs = limitMs(10_000)

it('deliveries are answered 503 while Postgres is read-only (a failover to a standby), and accepted as soon as it is writable', async () => {
  await inTable('Postgres read-only, then writable', '503; nothing lost; receiving again ≤ 10 s', async () => {
    const { url, sql } = await withTestDatabase(preferredServer)
    await watchEffects(sql)
    const receiver = await (long ? withReceiverProcess : withReceiverHere)(url)
    const sender = withSender(receiver.url, 8)
    const name = new URL(url).pathname.slice(1)
    // Only a new session reads the setting.
    const reconnect = () =>
      sql`select pg_terminate_backend(pid) from pg_stat_activity where datname = ${name} and application_name = 'mediadock'`
    const load = startLoad({ urls: [receiver.url], perSecond, atOnce })
    let slowest = 0
    for (let round = 1; round <= rounds; round += 1) {
      const before = load.tally.acknowledged.length
      await eventually(() => load.tally.acknowledged.length > before + perSecond / 2)
      await sql.unsafe(`alter database ${name} set default_transaction_read_only = on`)
      const during = makeDeliveries(16)
      await eventually(async () => {
        await reconnect()
        const [answer] = await sender.sendAll(during.slice(0, 1))
        return answer?.status === 503
      })
      const known = await sql`select from mediadock.deliveries`
      for (const answer of await sender.sendAll(during))
        expect(answer).toMatchObject({ status: 503, outcome: 'unavailable', retryAfter: '5' })
      await delay(long ? 5000 : 200)
      expect(await sql`select from mediadock.deliveries`).toHaveLength(known.length)

      // Sessions that began meanwhile stay open, and are still read-only.
      await sql.unsafe(`alter database ${name} reset default_transaction_read_only`)
      const at = Date.now()
      await eventually(
        async () => firstAfter(load.tally.acknowledged, at) < Infinity && (await receiver.ready()) === 200,
        60_000,
      )
      slowest = Math.max(slowest, Date.now() - at)
    }
    const { acknowledged, refused, slowestMs } = await load.end()
    await untilInboxIsEmpty(sql)
    const books = await countBooks(sql, acknowledged)
    return {
      rounds,
      acknowledged: acknowledged.length,
      ...books,
      silenceMs: longestSilenceMs(acknowledged),
      measured: `receiving again after ${(slowest / 1000).toFixed(1)} s; ${refused} × 503, slowest answer ${(slowestMs / 1000).toFixed(1)} s`,
      met: books.lost === 0 && books.doubled === 0 && refused > 0 && slowest <= wellWithinMs && receiver.isRunning(),
    }
  })
})
