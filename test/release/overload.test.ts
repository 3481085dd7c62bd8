import { randomUUID } from 'node:crypto'
import { expect, it } from 'vitest'
import { expectKept, expectLandedOnce, untilInboxIsEmpty, watchEffects } from '../chaos/books.ts'
import { withReceiverProcess } from '../chaos/receiver-process.ts'
import { makeDeliveries, withSender, type Answer, type Outgoing } from '../chaos/sender.ts'
import { withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { failed } from '../support/webhooks.ts'

// Its queue holds 64 MiB of bodies before the next one is turned away.
const crowd = 76

it(
  'deliveries beyond the waiting bound are answered 503 at once, and those admitted before are kept',
  { timeout: 120_000 },
  async () => {
    const { url, sql } = await withTestDatabase()
    await watchEffects(sql)
    const receiver = await withReceiverProcess(url)
    const sender = withSender(receiver.url, crowd)
    const large = Array.from({ length: crowd }, oneOfOneMegabyte)
    const answers = new Map<Outgoing, Answer>()

    // A lock in place of a slow Postgres: every insert waits, and only inserts do.
    const { promise: mayGo, resolve: release } = Promise.withResolvers<void>()
    const { promise: isLocked, resolve: locked } = Promise.withResolvers<void>()
    const holding = sql.begin(async (transaction) => {
      await transaction`lock table mediadock.deliveries in access exclusive mode`
      locked()
      await mayGo
    })
    await isLocked
    const sending = Promise.all(large.map(async (delivery) => answers.set(delivery, await sender.send(delivery))))
    await eventually(() => answers.size > 0)
    const [first] = answers.values()
    release()
    await holding
    await sending

    expect(first).toMatchObject({ status: 503, outcome: 'unavailable', retryAfter: '5' })
    const reasons = await eventually(async () => {
      const rows = await sql`select outcome, reason from mediadock.arrivals`
      return rows.length >= crowd && rows
    })
    const turnedAway = ['too_much_waiting', 'too_much_being_received']
    expect(reasons.filter(({ reason }) => turnedAway.includes(reason)).length).toBeGreaterThan(0)
    // too_slow: a body of 1 MB among 75 others on a slow machine.
    for (const { outcome, reason } of reasons)
      expect(outcome === 'accepted' ? [null] : [...turnedAway, 'postgres_too_slow', 'too_slow']).toContain(reason)

    await expectKept(
      sql,
      large.filter((delivery) => answers.get(delivery)?.status === 200),
    )
    const after = makeDeliveries(100)
    const turnedDown = large.filter((delivery) => answers.get(delivery)?.status !== 200)
    for (const answer of await withSender(receiver.url, 4).sendAll([...turnedDown, ...after]))
      expect(answer.status).toBe(200)
    await untilInboxIsEmpty(sql)
    await expectLandedOnce(sql, [...large, ...after])
  },
)

function oneOfOneMegabyte(): Outgoing {
  const { requestId, body } = failed()
  return { webhookId: randomUUID(), requestId, body: Buffer.concat([body, Buffer.alloc(1_048_576 - body.length, ' ')]) }
}
