import { setTimeout as delay } from 'node:timers/promises'
import postgres from 'postgres'
import { expect, it } from 'vitest'
import { eventually } from '../support/eventually.ts'
import { describeOnPackaged, withPackagedPostgres } from '../support/own-packaged-postgres.ts'
import { countBooks, untilInboxIsEmpty, watchEffects } from './books.ts'
import { long, roundsOf } from './length.ts'
import { withReceiverProcess } from './receiver-process.ts'
import { longestSilenceMs, startLoad } from './steady-load.ts'
import { inTable } from './table.ts'

const rounds = roundsOf(5)
const perSecond = 200

/** Makes commits of stored deliveries return before the disk, regardless of the statement's setting. */
const forcedOff = `
  create function force_off() returns trigger language plpgsql as $$ begin perform set_config('synchronous_commit', 'off', true); return null; end $$;
  create trigger forced_off after insert on mediadock.deliveries for each statement execute function force_off();
  -- The feed waits for the disk before it says that there is a change, and so takes all there that came before.
  create trigger forced_off after insert on mediadock.feed_entries for each statement execute function force_off()`

describeOnPackaged('the canary', () => {
  it.skipIf(!long)(
    'a crash after acknowledging without fsync is reported as a loss each time',
    { timeout: 300_000 },
    async () => {
      await inTable(
        'the canary: `synchronous_commit=off` forced where deliveries are accepted, then a crash',
        'losses reported in each round',
        async () => {
          let [acknowledgedInAll, lostInAll, silenceMs] = [0, 0, 0]
          const lost: number[] = []
          for (let round = 1; round <= rounds; round += 1) {
            // No other activity may flush accepted deliveries to the disk.
            const server = await withPackagedPostgres({ settings: { synchronous_commit: 'off' } })
            const receiver = await withReceiverProcess(server.url)
            const client = () => postgres(server.url, { max: 1, onnotice: () => {} })
            const before = client()
            await watchEffects(before)
            await before.unsafe(forcedOff)
            const [writer] = await before<
              { pid: number }[]
            >`select pid from pg_stat_activity where backend_type = 'walwriter'`
            await before.end()
            // As in a machine failure: unflushed commits are still in memory, and no background writer has flushed them.
            process.kill(writer?.pid ?? expect.fail(), 'SIGSTOP')
            const load = startLoad({ urls: [receiver.url], perSecond })
            await eventually(() => load.tally.acknowledged.length > perSecond)
            const stopping = server.stop('immediate')
            await delay(300)
            process.kill(writer?.pid ?? expect.fail(), 'SIGCONT')
            await stopping
            const acknowledged = load.tally.acknowledged.slice()
            // Acknowledged deliveries are not sent again, since they are promised.
            const ending = load.end()
            await delay(100)
            await server.start()
            await ending
            const after = client()
            await untilInboxIsEmpty(after)
            const books = await countBooks(after, acknowledged)
            await after.end()
            await receiver.kill()
            lost.push(books.lost)
            lostInAll += books.lost
            acknowledgedInAll += acknowledged.length
            silenceMs = Math.max(silenceMs, longestSilenceMs(acknowledged))
          }
          return {
            rounds,
            acknowledged: acknowledgedInAll,
            lost: lostInAll,
            doubled: 0,
            silenceMs,
            measured: `lost ${lost.join(', ')}`,
            met: lost.every((n) => n > 0),
          }
        },
      )
    },
  )
})
