import { setTimeout as delay } from 'node:timers/promises'
import postgres from 'postgres'
import { expect, it, onTestFinished } from 'vitest'
import { expectKept } from '../chaos/books.ts'
import { limitMs, long } from '../chaos/length.ts'
import { withReceiverProcess } from '../chaos/receiver-process.ts'
import { startLoad } from '../chaos/steady-load.ts'
import { startCuttingProxy } from '../platform/support/cutting-proxy.ts'
import { eventually } from '../support/eventually.ts'
import { describeOnPackaged } from '../support/own-packaged-postgres.ts'
import { withTlsPostgres } from '../support/tls-postgres.ts'

const { rounds, seconds } = long ? { rounds: 3, seconds: 600 } : { rounds: 1, seconds: 3 }
const perSecond = 400
const resetEveryMs = long ? 1500 : 600

describeOnPackaged(`resets of every connection to Postgres, every ${resetEveryMs} ms`, () => {
  it.each(['require', 'disable'])(
    `lose nothing that was answered 200, and report no false duplicate (sslmode=%s, ${rounds} x ${seconds} s)`,
    async (sslmode) => {
      const server = await withTlsPostgres({ encryptedOnly: sslmode !== 'disable' })
      const sql = postgres(server.url, { max: 1, ssl: 'prefer', onnotice: () => {} })
      onTestFinished(() => sql.end({ timeout: 1 }))
      for (let round = 1; round <= rounds; round += 1) {
        const proxy = await startCuttingProxy(server.urlWith({ sslmode }))
        // A reconciler that is always at work, since its statements are lost as well.
        const receiver = await withReceiverProcess(proxy.url, {
          RECONCILE_CRON: '* * * * * *',
          STUCK_AFTER_SECONDS: '1',
        })
        await sql`insert into mediadock.requests (request_id, tracked_at) select gen_random_uuid(), now() - interval '1 hour' from generate_series(1, 500)`
        // Each is new and sent once, so none may be answered as a duplicate.
        const load = startLoad({ urls: [receiver.url], perSecond, again: false })
        let [resets, before] = [0, 0]
        const resetting = setInterval(() => {
          // On a slow machine a connection may take longer to open than the time between two resets.
          const { length: acknowledged } = load.tally.acknowledged
          if (acknowledged === before) return
          before = acknowledged
          resets += 1
          proxy.resetAll()
        }, resetEveryMs)
        onTestFinished(() => clearInterval(resetting))
        await (long ? delay(seconds * 1000) : eventually(() => resets >= (seconds * 1000) / resetEveryMs))
        const tally = await load.end()
        clearInterval(resetting)
        if (long)
          process.stdout.write(
            `resets ${sslmode} round ${round}: ${JSON.stringify({ ...tally, acknowledged: tally.acknowledged.length })}\n`,
          )
        expect(receiver.isRunning()).toBe(true)
        expect(tally).toMatchObject({ wrongDuplicates: 0, broken: 0 })
        expect(tally.slowestMs).toBeLessThanOrEqual(limitMs(5500))
        // Most of the time Postgres is there.
        if (long) expect(tally.acknowledged.length).toBeGreaterThan((perSecond * seconds) / 2)
        await expectKept(
          sql,
          tally.acknowledged.map(({ delivery }) => delivery),
        )
        await receiver.kill()
      }
    },
    rounds * (seconds + 60) * 1000,
  )
})
