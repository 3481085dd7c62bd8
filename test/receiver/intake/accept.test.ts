import { randomUUID } from 'node:crypto'
import { setImmediate, setTimeout as delay } from 'node:timers/promises'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createLogger } from '../../../src/platform/logger.ts'
import { sql } from '../../../src/platform/postgres/drizzle.ts'
import { createPool } from '../../../src/platform/postgres/postgres.ts'
import { deliveryId, toDelivery, type Delivery } from '../../../src/receiver/domain/delivery.ts'
import { createAcceptor } from '../../../src/receiver/intake/accept.ts'
import { messageTypes, startOmittingProxy } from '../../platform/support/omitting-proxy.ts'
import { withTestDatabase } from '../../support/database.ts'
import { defaultSource } from '../../support/receiver.ts'
import { aroundStatements } from '../../support/statements.ts'
import { noRoom } from '../../support/work-once.ts'
import { createTestWorker } from '../../support/worker.ts'

async function startAcceptor({ url, onStored = () => {} }: { url?: string; onStored?: () => void } = {}) {
  const pool = createPool({ url: url ?? (await withTestDatabase()).url, max: 2, keepsPlans: true })
  onTestFinished(() => pool.close())
  const flushes: number[] = []
  const acceptor = createAcceptor({
    db: pool.db,
    logger: createLogger('silent'),
    handOver: noRoom,
    onFlush: ({ deliveries }) => flushes.push(deliveries),
    onStored,
  })
  return { acceptor, flushes }
}

function newDelivery(receivedAt = new Date()): Delivery {
  const webhookId = randomUUID()
  const body = Buffer.from(
    JSON.stringify({ request_id: randomUUID(), status: 'ERROR', error: { code: 'x', message: 'y' } }),
  )
  const timestampSeconds = Math.floor(receivedAt.getTime() / 1000)
  const signed = { keyName: 'live', environment: 'live', timestampSeconds } as const
  return toDelivery({
    source: defaultSource,
    id: deliveryId(webhookId, body),
    webhookId,
    ...signed,
    receivedAt,
    headers: {},
    body,
  })
}

describe('accepting', () => {
  it('writes all deliveries of one turn of the process as one statement', async () => {
    const { acceptor, flushes } = await startAcceptor()
    const accepted = await Promise.all(Array.from({ length: 50 }, () => acceptor.accept(newDelivery())))
    expect(new Set(accepted)).toEqual(new Set(['accepted']))
    expect(flushes).toEqual([50])
  })

  it('writes a single delivery at the end of the turn, without waiting for others', async () => {
    const { acceptor, flushes } = await startAcceptor()
    const accepted = acceptor.accept(newDelivery())
    await setImmediate()
    expect(flushes).toEqual([1])
    expect(await accepted).toBe('accepted')
  })

  it("makes an unclaimed delivery due now, also if the host's clock is ahead", async () => {
    const database = await withTestDatabase()
    const { acceptor } = await startAcceptor(database)
    for (const ms of [3_600_000, -3_600_000]) await acceptor.accept(newDelivery(new Date(Date.now() + ms)))
    expect(await database.sql`select count(*)::int as due from mediadock.inbox where due_at <= now()`).toEqual([
      { due: 2 },
    ])
  })
})

it('gives back the room in memory if a delivery of the batch cannot be made ready to land', async () => {
  const { db } = createTestWorker({ databaseUrl: (await withTestDatabase()).url })
  const reserved = new Set<string>()
  const reserve = ({ id }: Delivery) => {
    if (reserved.size > 0) throw new Error('this one cannot be made ready')
    reserved.add(id)
    return { makeReady: () => {}, release: () => void reserved.delete(id) }
  }
  const handOver = { ...noRoom, reserve }
  const acceptor = createAcceptor({ db, logger: createLogger('silent'), handOver, onStored: () => {} })
  const ends = await Promise.allSettled([acceptor.accept(newDelivery()), acceptor.accept(newDelivery())])
  expect(ends.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
  expect(reserved.size).toBe(0)
})

describe('while Postgres accepts nothing', () => {
  it('a key with thousands of deliveries is refused, and no other key', async () => {
    const { db } = createTestWorker({ databaseUrl: (await withTestDatabase()).url })
    const goesOn = Promise.withResolvers<void>()
    const held = aroundStatements(db, (run) => goesOn.promise.then(run))
    const acceptor = createAcceptor({
      db: held,
      logger: createLogger('silent'),
      handOver: noRoom,
      onStored: () => {},
    })
    const flood = Promise.allSettled(Array.from({ length: 4500 }, () => acceptor.accept(newDelivery())))
    const others = Promise.allSettled(
      Array.from({ length: 100 }, () => acceptor.accept({ ...newDelivery(), keyName: 'sandbox' })),
    )
    goesOn.resolve()
    const refused = (all: PromiseSettledResult<unknown>[]) =>
      all.filter((one) => one.status === 'rejected' && one.reason.reason === 'too_much_waiting').length
    expect([refused(await flood), refused(await others)]).toEqual([500, 0])
  })
})

it('stores no half of a batch that Postgres refused only after its senders were answered', async () => {
  const { db } = createTestWorker({ databaseUrl: (await withTestDatabase()).url })
  let statements = 0
  const answered = Promise.withResolvers<void>()
  const refusing = aroundStatements(db, async () => {
    statements += 1
    await answered.promise
    return db.execute(sql`select 1 / 0`)
  })
  const acceptor = createAcceptor({
    db: refusing,
    logger: createLogger('silent'),
    handOver: noRoom,
    onStored: () => {},
  })
  const ends = await Promise.allSettled([acceptor.accept(newDelivery()), acceptor.accept(newDelivery())])
  expect(ends.map((end) => end.status === 'rejected' && end.reason.reason)).toEqual(Array(2).fill('postgres_too_slow'))
  answered.resolve()
  await delay(200)
  expect(statements).toBe(1)
})

describe('an incomplete answer of Postgres', () => {
  it('never counts as duplicate: without its rows, and without its end', async () => {
    const database = await withTestDatabase()
    const proxy = await startOmittingProxy(database.url)
    const { acceptor } = await startAcceptor({ url: proxy.url })
    const known = newDelivery()
    expect([await acceptor.accept(known), await acceptor.accept(known)]).toEqual(['accepted', 'duplicate'])
    for (const omitted of [
      [messageTypes.dataRow],
      [messageTypes.dataRow, messageTypes.commandComplete],
      [messageTypes.commandComplete],
    ]) {
      proxy.omit(...omitted)
      await expect(acceptor.accept(newDelivery())).rejects.toMatchObject({
        code: 'unavailable',
        reason: 'postgres_failed',
      })
      await expect(acceptor.accept(known)).rejects.toMatchObject({ code: 'unavailable', reason: 'postgres_failed' })
      proxy.omit()
      expect(await acceptor.accept(newDelivery()).catch(() => acceptor.accept(newDelivery()))).toBe('accepted')
    }
  })
})
