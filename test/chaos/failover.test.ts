import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import postgres from 'postgres'
import { expect, it, onTestFinished } from 'vitest'
import { migrate } from '../../src/platform/postgres/migrate.ts'
import { describeOnPackaged } from '../support/own-packaged-postgres.ts'
import { promote, rejoin, waitForStandby, withStandby } from '../support/standby.ts'
import { countBooks, untilInboxIsEmpty, watchEffects } from './books.ts'
import { long, roundsOf } from './length.ts'
import { withReceiverProcess } from './receiver-process.ts'
import { firstAfter, longestSilenceMs, startLoad } from './steady-load.ts'
import { inTable } from './table.ts'

const rounds = roundsOf(20)
const perSecond = 150
const loadMs = 1500
const againWithinMs = 10_000

// That the pool follows a promotion is shown in seconds by test/platform/postgres/hosts.test.ts.
describeOnPackaged('a lost primary', () => {
  it.skipIf(!long)(
    `${rounds} times, with a synchronous standby that is promoted, loses nothing`,
    { timeout: 900_000 },
    async () => {
      await inTable(
        'primary lost, synchronous standby promoted',
        '0 lost; receiving again ≤ 10 s after the promotion, without a restart',
        async () => {
          const { primary: first, standby: second } = await withStandby()
          await migrate({
            url: first.url,
            schema: 'mediadock',
            folder: path.resolve(import.meta.dirname, '../../drizzle/receiver'),
          })
          const [one, two] = [new URL(first.url), new URL(second.url)]
          const url = `postgres://${one.username}:${one.password}@${one.host},${two.host}/postgres?target_session_attrs=read-write`
          const seen = postgres(first.url, { max: 1, onnotice: () => {} })
          await watchEffects(seen)
          await seen.end()
          const receiver = await withReceiverProcess(url)
          const pid = receiver.pid()
          const load = startLoad({ urls: [receiver.url], perSecond, atOnce: 64 })
          const promoted: number[] = []
          let [primary, standby] = [first, second]
          for (let round = 1; round <= rounds; round += 1) {
            await waitForStandby(primary)
            await delay(loadMs)
            await primary.stop('immediate')
            await promote(standby)
            const at = Date.now()
            promoted.push(at)
            while (firstAfter(load.tally.acknowledged, at) === Infinity && Date.now() - at < 3 * againWithinMs)
              await delay(20)
            ;[primary, standby] = [standby, primary]
            if (round < rounds) await rejoin(standby, primary)
          }
          const { acknowledged, slowestMs } = await load.end()
          const sql = postgres(primary.url, { max: 1, onnotice: () => {} })
          onTestFinished(() => sql.end({ timeout: 1 }))
          await untilInboxIsEmpty(sql)
          const books = await countBooks(sql, acknowledged)
          const slowest = Math.max(...promoted.map((at) => firstAfter(acknowledged, at) - at))
          expect(receiver.pid()).toBe(pid)
          return {
            rounds,
            acknowledged: acknowledged.length,
            ...books,
            silenceMs: longestSilenceMs(acknowledged),
            measured: `receiving again ${(slowest / 1000).toFixed(1)} s after the promotion; slowest answer ${(slowestMs / 1000).toFixed(1)} s`,
            met: books.lost === 0 && books.doubled === 0 && slowest <= againWithinMs && receiver.isRunning(),
          }
        },
      )
    },
  )
})
