import { setTimeout as delay } from 'node:timers/promises'
import postgres from 'postgres'
import { it, onTestFinished } from 'vitest'
import { eventually } from '../support/eventually.ts'
import { describeOnPackaged, withPackagedPostgres } from '../support/own-packaged-postgres.ts'
import { countBooks, untilInboxIsEmpty, watchEffects } from './books.ts'
import { limitMs, long, roundsOf } from './length.ts'
import { withReceiverProcess } from './receiver-process.ts'
import { watchResident } from './resident.ts'
import { firstAfter, longestSilenceMs, startLoad } from './steady-load.ts'
import { inTable } from './table.ts'

const crashes = long ? roundsOf(50) : 1
const perSecond = 300
const readyWithinMs = limitMs(5000)

async function withMigratedReceiver() {
  const server = await withPackagedPostgres()
  const receiver = await withReceiverProcess(server.url)
  const client = () => {
    const sql = postgres(server.url, { max: 1, onnotice: () => {} })
    onTestFinished(() => sql.end({ timeout: 1 }))
    return sql
  }
  await watchEffects(client())
  return { server, receiver, client }
}

describeOnPackaged('Postgres under load', () => {
  it(`crashed ${crashes} times keeps everything that was acknowledged`, { timeout: 900_000 }, async () => {
    await inTable(
      'Postgres crashed (`-m immediate`) under load',
      '0 lost; ready again ≤ 5 s after Postgres is back',
      async () => {
        const { server, receiver, client } = await withMigratedReceiver()
        // Short: while Postgres starts again, each waiting delivery is sent ten times a second.
        const load = startLoad({ urls: [receiver.url], perSecond, atOnce: long ? 256 : 32 })
        let slowest = 0
        for (let crash = 1; crash <= crashes; crash += 1) {
          const before = load.tally.acknowledged.length
          await eventually(() => load.tally.acknowledged.length > before + perSecond, 90_000)
          await server.stop('immediate')
          await server.start()
          const at = Date.now()
          await eventually(
            async () => (await receiver.ready()) === 200 && firstAfter(load.tally.acknowledged, at) < Infinity,
            30_000,
          )
          slowest = Math.max(slowest, Date.now() - at)
        }
        const { acknowledged } = await load.end()
        const sql = client()
        await untilInboxIsEmpty(sql)
        const books = await countBooks(sql, acknowledged)
        return {
          rounds: crashes,
          acknowledged: acknowledged.length,
          ...books,
          silenceMs: longestSilenceMs(acknowledged),
          measured: `ready and acknowledging ${(slowest / 1000).toFixed(1)} s after Postgres was back`,
          met: books.lost === 0 && books.doubled === 0 && slowest <= readyWithinMs,
        }
      },
    )
  })

  const freezes = roundsOf(5)
  const frozenMs = 30_000
  const answeredWithinMs = 5000
  const maxMebibytes = 256

  // A short freeze is shown by postgres-away.test.ts.
  it.skipIf(!long)(
    `frozen ${freezes} times for 30 s causes 503, and everything continues afterwards`,
    { timeout: 900_000 },
    async () => {
      await inTable(
        'Postgres frozen 30 s',
        '503 within 5 s each, memory < 256 MB, full speed ≤ 5 s after',
        async () => {
          const { server, receiver, client } = await withMigratedReceiver()
          const memory = watchResident(receiver.pid)
          const load = startLoad({ urls: [receiver.url], perSecond })
          let slowest = 0
          for (let freeze = 1; freeze <= freezes; freeze += 1) {
            await delay(3000)
            await server.freeze()
            await delay(frozenMs)
            server.thaw()
            const at = Date.now()
            // As many in a second as before.
            const inLastSecond = () => load.tally.acknowledged.filter((one) => one.at > Date.now() - 1000).length
            await eventually(() => inLastSecond() >= perSecond * 0.9)
            slowest = Math.max(slowest, Date.now() - at)
          }
          const { acknowledged, slowestMs, refused } = await load.end()
          const sql = client()
          await untilInboxIsEmpty(sql)
          const books = await countBooks(sql, acknowledged)
          return {
            rounds: freezes,
            acknowledged: acknowledged.length,
            ...books,
            silenceMs: longestSilenceMs(acknowledged),
            measured: `slowest answer ${(slowestMs / 1000).toFixed(1)} s (${refused} × 503), at most ${Math.round(memory.most())} MiB, full speed after ${(slowest / 1000).toFixed(1)} s`,
            met:
              books.lost === 0 &&
              books.doubled === 0 &&
              refused > 0 &&
              slowestMs <= answeredWithinMs &&
              memory.most() < maxMebibytes &&
              slowest <= 5000,
          }
        },
      )
    },
  )
})
