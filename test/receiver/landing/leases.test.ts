import { setTimeout as delay } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import type { Delivery, HandOver } from '../../../src/receiver/domain/delivery.ts'
import { createAcceptor } from '../../../src/receiver/intake/accept.ts'
import { claimDeliveries, inboxLeaseSeconds, returnClaims } from '../../../src/receiver/landing/inbox.ts'
import { withTestDatabase, usualServers } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { aroundStatements, landingAfter } from '../../support/statements.ts'
import { failed, okImage } from '../../support/webhooks.ts'
import { freezing, noRoom, testHandOver, workOnce } from '../../support/work-once.ts'
import { createTestWorker, newDelivery, store } from '../../support/worker.ts'

/* For how long a delivery in flight belongs to its process. */

const later = (date: Date, seconds: number) => new Date(date.getTime() + seconds * 1000)

it('returns claims at once beside a row that another transaction locks', async () => {
  const { url, sql } = await withTestDatabase()
  const deps = createTestWorker({ databaseUrl: url })
  await store(deps.db, [failed().body, failed().body])
  deps.setNow(new Date())
  const claims = await claimDeliveries(deps.db, { limit: 2, maxBytes: 10_000, now: deps.time() })
  const [locked, free] = claims.map(({ deliveryId }) => deliveryId)
  await sql.begin(async (tx) => {
    await tx`select from mediadock.inbox where delivery_id = ${locked ?? ''} for update`
    await returnClaims(deps.db, claims, { now: deps.time() })
    const due = await sql`select delivery_id from mediadock.inbox where due_at <= ${deps.clock()}`
    expect(due).toEqual([{ delivery_id: free }])
  })
})

it('a delivery sent again lands at once, although an earlier statement fails after its time', async () => {
  const { url, sql } = await withTestDatabase()
  const deps = createTestWorker({ databaseUrl: url })
  const handOver = testHandOver(deps)
  const lost = Promise.withResolvers<void>()
  let statements = 0
  const db = aroundStatements(deps.db, async (run) => {
    statements += 1
    if (statements === 1) return lost.promise
    // The connection of the first statement ends while the second one runs.
    lost.reject(new Error('the connection was lost'))
    await delay(100)
    return run()
  })
  const acceptor = createAcceptor({ db, time: deps.time, logger: deps.logger, handOver, onStored: () => {} })
  const delivery = newDelivery(failed().body)
  await expect(acceptor.accept(delivery)).rejects.toMatchObject({ reason: 'postgres_too_slow' })
  expect(await acceptor.accept(delivery)).toBe('accepted')
  await handOver.idle()
  expect(await sql`select from mediadock.inbox`).toEqual([])
  expect(await sql`select status from mediadock.results`).toEqual([{ status: 'FAILED' }])
})

describe.each(usualServers)('on %s: a delivery in flight', (server) => {
  it('is renewed in time, regardless of how long storing took', async () => {
    const { url } = await withTestDatabase(server)
    const writing = Promise.withResolvers<void>()
    const deps = createTestWorker({ databaseUrl: url })
    const handOver = testHandOver({ ...deps, db: landingAfter(deps.db, writing.promise) })
    const start = deps.clock()
    const slow = aroundStatements(deps.db, async (run) => {
      const stored = await run()
      deps.setNow(later(start, 4))
      return stored
    })
    const acceptor = createAcceptor({
      db: slow,
      time: deps.time,
      logger: deps.logger,
      handOver,
      onStored: () => {},
    })
    await acceptor.accept(newDelivery(okImage().body))
    await handOver.renewLeases()
    deps.setNow(later(start, inboxLeaseSeconds + 0.5))
    expect(await claimDeliveries(deps.db, { limit: 1, maxBytes: 1000, now: deps.time() })).toEqual([])
    writing.resolve()
    await handOver.idle()
  })

  it('is renewed in time, regardless of how long claiming took', async () => {
    const { url } = await withTestDatabase(server)
    const writing = Promise.withResolvers<void>()
    const deps = createTestWorker({ databaseUrl: url })
    await store(deps.db, [okImage().body])
    deps.setNow(new Date())
    const start = deps.clock()
    let slowly = true
    const slow = aroundStatements(deps.db, async (run) => {
      const rows = await run()
      if (slowly) deps.setNow(later(start, 4))
      slowly = false
      return rows
    })
    const handOver = testHandOver({ ...deps, db: landingAfter(slow, writing.promise) })
    await handOver.claimSome()
    await handOver.renewLeases()
    deps.setNow(later(start, inboxLeaseSeconds + 0.5))
    expect(await claimDeliveries(deps.db, { limit: 1, maxBytes: 1000, now: deps.time() })).toEqual([])
    writing.resolve()
    await handOver.idle()
  })

  it('is in flight once if this process claims it again after its lease ended, and ended by the later claim', async () => {
    const { url, sql } = await withTestDatabase(server)
    const writing = Promise.withResolvers<void>()
    const deps = createTestWorker({ databaseUrl: url })
    const handOver = testHandOver({ ...deps, db: landingAfter(deps.db, writing.promise) })
    const acceptor = createAcceptor({
      db: deps.db,
      time: deps.time,
      logger: deps.logger,
      handOver,
      onStored: () => {},
    })
    // While one of its request is written, another waits for that batch.
    const { requestId, body } = failed()
    await acceptor.accept(newDelivery(body))
    const waiting = newDelivery(okImage(requestId).body)
    await acceptor.accept(waiting)
    deps.setNow(later(deps.clock(), inboxLeaseSeconds + 1))
    await handOver.claimSome()
    expect(await sql`select claims from mediadock.inbox`).toEqual([{ claims: 2 }, { claims: 2 }])
    writing.resolve()
    await handOver.idle()
    expect(await sql`select from mediadock.inbox where delivery_id = ${waiting.id}`).toEqual([])
    expect(await sql`select outcome from mediadock.attempts`).toEqual([{ outcome: 'contradiction' }])
  })

  it('is not ended by a former claimant after it landed and was queued again', async () => {
    const { url, sql } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    const handOver = testHandOver(deps)
    const frozen = freezing(handOver)
    const acceptor = (given: HandOver) =>
      createAcceptor({ db: deps.db, time: deps.time, logger: deps.logger, handOver: given, onStored: () => {} })
    const delivery: Delivery = { ...newDelivery(failed().body), environment: 'sandbox', keyName: 'sandbox' }
    await acceptor(frozen.handOver).accept(delivery)
    deps.setNow(later(deps.clock(), inboxLeaseSeconds + 1))
    expect(await workOnce(deps)).toMatchObject({ landed: 1 })
    // A live key signed it too, so it is queued anew, and another process claims it.
    expect(await acceptor(noRoom).accept({ ...delivery, environment: 'live', keyName: 'live' })).toBe('duplicate')
    deps.setNow(later(deps.clock(), 1))
    expect(await claimDeliveries(deps.db, { limit: 1, maxBytes: 1000, now: deps.time() })).toHaveLength(1)
    frozen.wakeUp()
    await handOver.idle()
    expect(await sql`select delivery_id from mediadock.inbox`).toEqual([{ delivery_id: delivery.id }])
  })

  it('is not renewed after its postponement while others of its batch are still landing', async () => {
    const { url, sql } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    const [refused, other] = [failed(), failed()]
    await sql.unsafe(`create function public.refuse() returns trigger language plpgsql as $$ begin
        if new.request_id = '${refused.requestId}' then raise exception 'no'; end if; return new; end $$;
      create trigger refuse before insert on mediadock.requests for each row execute function public.refuse();`)
    const putOff = async () => (await sql`select due_at::text from mediadock.inbox where failures = 1`)[0]?.['due_at']
    const mayGoOn = Promise.withResolvers<void>()
    let isHeldUp = false
    const db = aroundStatements(deps.db, async (run) => {
      if (isHeldUp) await mayGoOn.promise
      const rows = await run()
      isHeldUp ||= (await putOff()) !== undefined
      return rows
    })
    const handOver = testHandOver({ ...deps, db })
    await store(deps.db, [refused.body])
    deps.setNow(later(deps.clock(), 0.5))
    await store(deps.db, [other.body])
    deps.setNow(later(deps.clock(), 1))
    await handOver.claimSome()
    await eventually(() => isHeldUp)
    const before = await putOff()
    isHeldUp = false
    deps.setNow(later(deps.clock(), 4))
    const renewed = handOver.renewLeases()
    mayGoOn.resolve()
    await renewed
    expect(await putOff()).toBe(before)
    await handOver.idle()
  })
})
