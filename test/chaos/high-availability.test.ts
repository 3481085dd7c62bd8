import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import postgres from 'postgres'
import { expect, it, onTestFinished } from 'vitest'
import { migrate } from '../../src/platform/postgres/migrate.ts'
import { hasAutoFailover, untilWritable, withAutoFailover } from '../support/auto-failover.ts'
import { describeOnPackaged } from '../support/own-packaged-postgres.ts'
import { countBooks, untilInboxIsEmpty, watchEffects } from './books.ts'
import { long, roundsOf } from './length.ts'
import { withReceiverProcess } from './receiver-process.ts'
import { firstAfter, longestSilenceMs, startLoad } from './steady-load.ts'
import { inTable, notShown } from './table.ts'

const rounds = roundsOf(3)
const perSecond = 200
const loadMs = 3000
const againWithinMs = 10_000
const fault = 'primary lost under pg_auto_failover with its defaults'
const goal = '0 lost; receiving again ≤ 10 s after its promotion, without a restart'

// Only the engine promotes here. test/platform/postgres/hosts.test.ts shows in seconds that a promotion is followed.
describeOnPackaged('a highly available Postgres', () => {
  it.skipIf(!long)(
    `loses its primary ${rounds} times, and nothing that was acknowledged`,
    { timeout: 1_200_000 },
    async (test) => {
      if (!(await hasAutoFailover())) {
        await notShown(fault, goal, 'pg_auto_failover is not installed here')
        return test.skip('pg_auto_failover is not installed here')
      }
      await inTable(fault, goal, async () => {
        const cluster = await withAutoFailover()
        let { primary } = await cluster.untilWhole()
        await migrate({
          url: cluster.url,
          schema: 'mediadock',
          folder: path.resolve(import.meta.dirname, '../../drizzle/receiver'),
        })
        const urlOf = (port: number) => cluster.url.replace(/@.*\//, `@127.0.0.1:${port}/`).replace(/\?.*/, '')
        const seen = postgres(urlOf(primary.port), { max: 1, onnotice: () => {} })
        await watchEffects(seen)
        await seen.end()
        const receiver = await withReceiverProcess(cluster.url)
        const pid = receiver.pid()
        const load = startLoad({ urls: [receiver.url], perSecond, atOnce: 64 })
        const again: number[] = []
        const without: number[] = []
        for (let round = 1; round <= rounds; round += 1) {
          const whole = await cluster.untilWhole()
          await delay(loadMs)
          const killedAt = Date.now()
          await whole.primary.kill()
          const promotedAt = await untilWritable(urlOf(whole.secondary.port))
          without.push(promotedAt - killedAt)
          while (
            firstAfter(load.tally.acknowledged, promotedAt) === Infinity &&
            Date.now() - promotedAt < 3 * againWithinMs
          )
            await delay(20)
          again.push(firstAfter(load.tally.acknowledged, promotedAt) - promotedAt)
          await whole.primary.start()
          primary = whole.secondary
        }
        await cluster.untilWhole()
        await delay(loadMs)
        const { acknowledged, slowestMs } = await load.end()
        const sql = postgres(urlOf(primary.port), { max: 1, onnotice: () => {} })
        onTestFinished(() => sql.end({ timeout: 1 }))
        await untilInboxIsEmpty(sql)
        const books = await countBooks(sql, acknowledged)
        expect(receiver.pid()).toBe(pid)
        const seconds = (ms: readonly number[]) => (Math.max(...ms) / 1000).toFixed(1)
        return {
          rounds,
          acknowledged: acknowledged.length,
          ...books,
          silenceMs: longestSilenceMs(acknowledged),
          measured: `promoted ${seconds(without)} s after the kill, receiving again ${seconds(again)} s later; slowest answer ${(slowestMs / 1000).toFixed(1)} s`,
          met: books.lost === 0 && books.doubled === 0 && Math.max(...again) <= againWithinMs && receiver.isRunning(),
        }
      })
    },
  )
})
