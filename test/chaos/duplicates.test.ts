import { expect, it } from 'vitest'
import { withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { expectLandedOnce, untilInboxIsEmpty, watchEffects } from './books.ts'
import { long } from './length.ts'
import { withReceiverHere, withReceiverProcess } from './receiver-process.ts'
import { countBy, makeDeliveries, shuffled, withSender } from './sender.ts'

const count = long ? 100_000 : 300

it(
  `${count} deliveries, each sent three times in random order over 64 connections, are stored, landed and notified once`,
  { timeout: long ? 600_000 : 120_000 },
  async () => {
    const { url, sql } = await withTestDatabase()
    await watchEffects(sql)
    const receiver = await (long ? withReceiverProcess : withReceiverHere)(url)
    const notified: string[] = []
    await sql.listen('mediadock_results', (payload) => void notified.push(JSON.parse(payload).request_id))

    const deliveries = makeDeliveries(count)
    const answers = await withSender(receiver.url, 64).sendAll(shuffled([...deliveries, ...deliveries, ...deliveries]))
    expect(countBy(answers, ({ status }) => status)).toEqual({ 200: 3 * count })
    expect(countBy(answers, ({ outcome }) => outcome)).toEqual({ accepted: count, duplicate: 2 * count })

    await untilInboxIsEmpty(sql, long ? 300_000 : 60_000)
    await expectLandedOnce(sql, deliveries)
    await eventually(() => notified.length >= count)
    // Each of them has its row in the log, however fast they came.
    const logged = async () =>
      (
        await sql<
          { outcome: string; n: number }[]
        >`select outcome, count(*)::int as n from mediadock.arrivals group by outcome order by outcome`
      ).map(({ outcome, n }) => [outcome, n])
    await eventually(async () => (await logged()).reduce((sum, [, n]) => sum + Number(n), 0) >= 3 * count)
    expect(Object.fromEntries(await logged())).toEqual({ accepted: count, duplicate: 2 * count })
    expect(notified.sort()).toEqual(deliveries.map(({ requestId }) => requestId).sort())
  },
)
