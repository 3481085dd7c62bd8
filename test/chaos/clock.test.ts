import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { preferredServer, withTestDatabase } from '../support/database.ts'
import { countBooks, untilAllLanded, watchEffects } from './books.ts'
import { long, roundsOf } from './length.ts'
import { withReceiverProcess } from './receiver-process.ts'
import { longestSilenceMs, startLoad } from './steady-load.ts'
import { inTable } from './table.ts'

const rounds = roundsOf(5)
const perSecond = 200
const landedWithinMs = 10_000
const preload = path.resolve(import.meta.dirname, 'meddling.ts')
const minutes = 60_000

type Fault = { name: string; message: object; lastsMs: number }

const faults: Fault[] = [
  { name: 'clock 10 min ahead', message: { shiftMs: 10 * minutes }, lastsMs: 2500 },
  { name: 'clock 10 min behind', message: { shiftMs: -10 * minutes }, lastsMs: 2500 },
  { name: 'clock 1 h ahead', message: { shiftMs: 60 * minutes }, lastsMs: 2500 },
  { name: 'clock 1 h behind', message: { shiftMs: -60 * minutes }, lastsMs: 2500 },
  { name: 'event loop blocked 5 s', message: { blockMs: 5000 }, lastsMs: 6500 },
]

// The tests of signatures, claims and the budget of calls show the effect of a wrong clock on each part.
describe.skipIf(!long)('one of two receivers', () => {
  it.each(faults)(
    'with its $name runs nothing twice and leaves nothing behind',
    { timeout: 300_000 },
    async ({ name, message, lastsMs }) => {
      await inTable(name, 'no work runs twice, none is stranded', async () => {
        const { url, sql } = await withTestDatabase(preferredServer)
        await watchEffects(sql)
        const receivers = await Promise.all([1, 2].map(() => withReceiverProcess(url, {}, { preload })))
        const [odd = expect.fail(), other = expect.fail()] = receivers
        const load = startLoad({ urls: [odd.url, other.url], perSecond, pauseMs: 50 })
        for (let round = 1; round <= rounds; round += 1) {
          await delay(1000)
          odd.tell(message)
          await delay(lastsMs)
          // The worst end that it can have: with what it holds, by its own clock.
          await odd.kill()
          await odd.start()
        }
        const { acknowledged, refused } = await load.end()
        const since = Date.now()
        await untilAllLanded(sql, 3 * landedWithinMs).catch(() => {})
        const tookMs = Date.now() - since
        const books = await countBooks(sql, acknowledged)
        return {
          rounds,
          acknowledged: acknowledged.length,
          ...books,
          silenceMs: longestSilenceMs(acknowledged),
          measured: `all landed ${(tookMs / 1000).toFixed(1)} s after the last delivery; ${refused} refused by that receiver and accepted by another`,
          met: books.lost === 0 && books.doubled === 0 && tookMs <= landedWithinMs,
        }
      })
    },
  )
})
