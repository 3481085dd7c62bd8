import { setTimeout as delay } from 'node:timers/promises'
import postgres from 'postgres'
import { expect, it, onTestFinished } from 'vitest'
import { preferredServer } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { expectKept, expectLandedOnce, untilInboxIsEmpty, watchEffects } from './books.ts'
import { limitMs, long } from './length.ts'
import { withOwnPostgres, type OwnPostgres } from './own-postgres.ts'
import { withReceiverProcess } from './receiver-process.ts'
import { makeDeliveries, withSender, type Answer, type Outgoing } from './sender.ts'

const answeredWithinMs = limitMs(5000)
/** Longer than the 15 s after which the receiver cuts a connection that sends nothing. */
const longFreezeMs = 25_000

function withClient({ url }: OwnPostgres): postgres.Sql {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  onTestFinished(() => sql.end({ timeout: 1 }))
  return sql
}

function expectUnavailable(answers: readonly Answer[]): void {
  for (const answer of answers) {
    expect(answer).toMatchObject({ status: 503, outcome: 'unavailable', retryAfter: '5' })
    expect(answer.tookMs).toBeLessThanOrEqual(answeredWithinMs)
  }
}

it(
  'a frozen Postgres is answered 503 within 5 s; when it continues, nothing that was answered 200 is missing',
  { timeout: 120_000 },
  async () => {
    const server = await withOwnPostgres()
    const receiver = await withReceiverProcess(server.url)
    await watchEffects(withClient(server))
    const sender = withSender(receiver.url, 32)
    const deliveries = makeDeliveries(96)
    const acknowledged: Outgoing[] = []
    const remember = (delivery: Outgoing) => void acknowledged.push(delivery)
    await sender.sendUntilAccepted(deliveries.slice(0, 32), remember)

    await server.freeze()
    // Readiness is of at most 2 s ago.
    const notReady = eventually(async () => (await receiver.ready()) === 503, answeredWithinMs)
    const [answers] = await Promise.all([sender.sendAll(deliveries.slice(32, 64)), notReady])
    expectUnavailable(answers)
    expectUnavailable(await sender.sendAll(deliveries.slice(64)))
    if (long) await delay(longFreezeMs)

    server.thaw()
    // The provider comes again with all that it was not answered 200 for.
    await sender.sendUntilAccepted(deliveries.slice(32), remember)
    await eventually(async () => (await receiver.ready()) === 200)
    const sql = withClient(server)
    expect(acknowledged).toHaveLength(deliveries.length)
    await expectKept(sql, acknowledged)
    await untilInboxIsEmpty(sql)
    await expectLandedOnce(sql, deliveries)
  },
)

// Where there is a packaged one, it is crashed instead: postgres-crash.test.ts.
it.skipIf(preferredServer === 'packaged' && !long)(
  'a Postgres that is stopped and started is answered 503 meanwhile, and the receiver recovers',
  { timeout: 120_000 },
  async () => {
    const server = await withOwnPostgres()
    const receiver = await withReceiverProcess(server.url)
    await watchEffects(withClient(server))
    const sender = withSender(receiver.url, 32)
    const deliveries = makeDeliveries(2000)
    const acknowledged: Outgoing[] = []
    const sending = sender.sendUntilAccepted(deliveries, (delivery) => void acknowledged.push(delivery))

    await eventually(() => acknowledged.length > 200)
    await server.stop()
    const known = acknowledged.length
    expect(known).toBeLessThan(deliveries.length)
    await eventually(async () => (await receiver.ready()) === 503)
    expectUnavailable(await withSender(receiver.url, 8).sendAll(deliveries.slice(-8)))
    expect(acknowledged).toHaveLength(known)

    await server.start()
    const { refused } = await sending
    expect(refused).toBeGreaterThan(0)
    expect(receiver.isRunning()).toBe(true)
    const sql = withClient(server)
    await expectKept(sql, acknowledged)
    await untilInboxIsEmpty(sql)
    await expectLandedOnce(sql, deliveries)
  },
)
