import { expect, it } from 'vitest'
import { withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { expectKept, expectLandedOnce, untilInboxIsEmpty, watchEffects } from './books.ts'
import { long } from './length.ts'
import { withReceiverProcess } from './receiver-process.ts'
import { makeDeliveries, withSender, type Outgoing } from './sender.ts'

const { count, kills } = long ? { count: 60_000, kills: 20 } : { count: 2400, kills: 2 }

it(
  `kill -9 of the receiver, ${kills} times under load, loses nothing that was answered 200`,
  { timeout: long ? 900_000 : 120_000 },
  async () => {
    const { url, sql } = await withTestDatabase()
    await watchEffects(sql)
    const receiver = await withReceiverProcess(url)
    const deliveries = makeDeliveries(count)
    const acknowledged: Outgoing[] = []
    const sending = withSender(receiver.url, 64).sendUntilAccepted(deliveries, (delivery) => void acknowledged.push(delivery))

    for (let kill = 1; kill <= kills; kill += 1) {
      await eventually(() => acknowledged.length >= (count * kill) / (kills + 1), 120_000)
      await receiver.kill()
      const before = acknowledged.slice()
      expect(before.length).toBeLessThan(count)
      await expectKept(sql, before)
      await receiver.start()
    }
    const { broken } = await sending
    expect(broken).toBeGreaterThanOrEqual(kills)
    await expectKept(sql, deliveries)

    await untilInboxIsEmpty(sql)
    await expectLandedOnce(sql, deliveries)
  },
)
