import { setTimeout as delay } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import type { HandOver } from '../../../src/receiver/domain/delivery.ts'
import { createAcceptor, type Acceptor } from '../../../src/receiver/intake/accept.ts'
import { createHandOver } from '../../../src/receiver/landing/hand-over.ts'
import { claimDeliveries, inboxLeaseSeconds } from '../../../src/receiver/landing/inbox.ts'
import type { LandingDeps } from '../../../src/receiver/landing/landing-deps.ts'
import { withTestDatabase, usualServers } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { defaultSource, keysOf, liveKey, sandboxKey } from '../../support/receiver.ts'
import { aroundStatements, landingAfter } from '../../support/statements.ts'
import { failed, okImage } from '../../support/webhooks.ts'
import { freezing, testHandOver, workOnce } from '../../support/work-once.ts'
import { createTestWorker, newDelivery, store } from '../../support/worker.ts'

const acceptorFor = (deps: LandingDeps, handOver: HandOver): Acceptor =>
  createAcceptor({ db: deps.db, time: deps.time, logger: deps.logger, handOver, onStored: () => {} })

const failedWith = (requestId: string, n: number): Buffer =>
  Buffer.from(
    JSON.stringify({ request_id: requestId, status: 'ERROR', error: { code: 'GENERATION_FAILED', message: `${n}` } }),
  )

it('a delivery whose source was removed since its arrival is parked, as one in the queue is', async () => {
  const { url, sql } = await withTestDatabase()
  const deps = createTestWorker({ databaseUrl: url })
  const handOver = testHandOver(deps)
  await acceptorFor(deps, handOver).accept({ ...newDelivery(failed().body), sourceName: 'removed' })
  await handOver.idle()
  deps.setNow(new Date())
  await workOnce(deps)
  expect(await sql`select parked_reason from mediadock.deliveries`).toEqual([{ parked_reason: 'unknown_source' }])
  expect(await sql`select from mediadock.requests`).toEqual([])
})

it('a claimed delivery lands while another one of its claim is still being parked', async () => {
  const { url, sql } = await withTestDatabase()
  const deps = createTestWorker({ databaseUrl: url })
  const mayPark = Promise.withResolvers<void>()
  const db = aroundStatements(deps.db, async (run, text) => {
    // Parking is the only statement here that is not prepared.
    if (text === '') await mayPark.promise
    return run()
  })
  const handOver = testHandOver({ ...deps, db })
  await store(deps.db, [Buffer.from('not JSON')])
  await store(deps.db, [failed().body])
  await sql`update mediadock.deliveries set parked_reason = null`
  await sql`insert into mediadock.inbox (delivery_id, due_at)
    select id, 'epoch' from mediadock.deliveries where request_id is null`
  deps.setNow(new Date(Date.now() + 1000))
  const claiming = handOver.claimSome()
  await eventually(async () => (await sql`select from mediadock.results`).length === 1)
  mayPark.resolve()
  await claiming
  await handOver.idle()
})

it('deliveries that wait long behind others of their claim are returned before their leases end', async () => {
  const { url, sql } = await withTestDatabase()
  const deps = createTestWorker({ databaseUrl: url })
  let now = Date.now() + 1000
  deps.setNow(new Date(now))
  // Parking takes 2 s. Claiming is prepared, so it is another kind of statement here.
  const db = aroundStatements(deps.db, (run, text) => {
    if (text === '') deps.setNow(new Date((now += 2000)))
    return run()
  })
  await store(
    deps.db,
    Array.from({ length: 5 }, (_, n) => Buffer.from(`not JSON ${n}`)),
  )
  await sql`update mediadock.deliveries set parked_reason = null`
  await sql`insert into mediadock.inbox (delivery_id, due_at) select id, 'epoch' from mediadock.deliveries`
  const parkedAndDue = async () => {
    const [row] =
      await sql`select (select count(*)::int from mediadock.deliveries where parked_reason is not null) as parked,
      (select count(*)::int from mediadock.inbox where due_at <= ${new Date(now)}) as due`
    return row
  }
  await testHandOver({ ...deps, db }).claimSome()
  expect(await parkedAndDue()).toEqual({ parked: 2, due: 3 })
  await testHandOver({ ...deps, db }).claimSome()
  expect(await parkedAndDue()).toEqual({ parked: 4, due: 1 })
})

it('a delivery that this version fails to read is parked after five tries, and the others land', async () => {
  const { url, sql } = await withTestDatabase()
  const poisoned = failed()
  const { kind } = defaultSource
  const parse: typeof kind.parse = (json, archive) => {
    if (JSON.stringify(json).includes(poisoned.requestId)) throw new TypeError('a bug')
    return kind.parse(json, archive)
  }
  const keys = keysOf(liveKey, sandboxKey)
  const deps = createTestWorker({
    databaseUrl: url,
    keys: () => ({ ...keys, defaultSource: { ...keys.defaultSource, kind: { ...kind, parse } } }),
  })
  await store(deps.db, [poisoned.body, failed().body])
  const start = Date.now()
  for (const seconds of [1, 10, 20, 40, 80]) {
    deps.setNow(new Date(start + seconds * 1000))
    await workOnce(deps)
  }
  expect(await sql`select parked_reason from mediadock.deliveries order by parked_reason`).toEqual([
    { parked_reason: 'landing_failed' },
    { parked_reason: null },
  ])
  expect(await sql`select from mediadock.results`).toHaveLength(1)
})

it('a delivery that Postgres fails for keeps no other one in the queue, while fresh ones land', async () => {
  const { url, sql } = await withTestDatabase()
  const deps = createTestWorker({ databaseUrl: url })
  const handOver = testHandOver(deps)
  const acceptor = acceptorFor(deps, handOver)
  const samples = Array.from({ length: 4 }, () => failed())
  // As of a trigger that runs longer than a statement may.
  await sql.unsafe(`
    create function public.cancel() returns trigger language plpgsql as
      $$ begin raise exception 'canceled' using errcode = '57014'; end $$;
    create trigger cancel after insert on mediadock.requests for each row
      when (new.request_id = '${samples[0]?.requestId}') execute function public.cancel()`)
  await store(
    deps.db,
    samples.map(({ body }) => body),
  )
  await sql`update mediadock.inbox set claims = 1`
  const landed = async () =>
    (await sql`select from mediadock.results where request_id = any(${samples.map(({ requestId }) => requestId)})`)
      .length
  for (let round = 0; round < 6 && (await landed()) < 3; round += 1) {
    deps.setNow(new Date(deps.clock().getTime() + 90_000))
    await acceptor.accept(newDelivery(failed().body))
    await handOver.idle()
    await handOver.claimSome()
    await handOver.idle()
  }
  expect(await landed()).toBe(3)
})

describe.each(usualServers)('on %s: a delivery just accepted', (server) => {
  it('lands without a claim', async () => {
    const { url, sql } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    const handOver = testHandOver(deps)
    const acceptor = acceptorFor(deps, handOver)
    const samples = Array.from({ length: 40 }, () => failed())
    await Promise.all(samples.map(({ body }) => acceptor.accept(newDelivery(body))))
    await handOver.idle()
    expect(await sql`select status from mediadock.results where status = 'FAILED'`).toHaveLength(40)
    expect(await sql`select from mediadock.inbox`).toEqual([])
  })

  it('is stored without a claim if there is no room for it', async () => {
    const { url, sql } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    // Postgres is asked for nothing: what is taken stays in flight.
    const handOver = createHandOver({
      ...deps,
      db: aroundStatements(deps.db, () => new Promise(() => {})),
      giveWay: async () => {},
      wakeInbox: () => {},
      isPrepared: () => true,
      signal: new AbortController().signal,
    })
    const acceptor = acceptorFor(deps, handOver)
    await Promise.all(Array.from({ length: 1500 }, () => acceptor.accept(newDelivery(failed().body))))
    const [inbox] = await sql`select count(*) filter (where claims = 1 and due_at > now())::int as claimed,
      count(*) filter (where claims = 0 and due_at <= now())::int as waiting from mediadock.inbox`
    expect(inbox).toEqual({ claimed: 1000, waiting: 500 })
    // Of another key, whose deliveries wait for none of those.
    await Promise.all(
      Array.from({ length: 300 }, () => acceptor.accept({ ...newDelivery(failed().body), keyName: 'sandbox' })),
    )
    expect(
      await sql`select count(*)::int as claimed from mediadock.inbox join mediadock.deliveries on id = delivery_id where key_name = 'sandbox' and claims = 1`,
    ).toEqual([{ claimed: 250 }])
  })

  it('is landed by another process when its lease ends, if its process died', async () => {
    const { url, sql } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    const dead = freezing(testHandOver(deps))
    const acceptor = acceptorFor(deps, dead.handOver)
    await Promise.all(Array.from({ length: 20 }, () => acceptor.accept(newDelivery(failed().body))))
    expect(await workOnce(deps)).toMatchObject({ claimed: 0 })
    expect(inboxLeaseSeconds).toBeLessThan(8)
    deps.setNow(new Date(Date.now() + inboxLeaseSeconds * 1000 + 1))
    expect(await workOnce(deps)).toMatchObject({ claimed: 20, landed: 20 })
    expect(await sql`select from mediadock.inbox`).toEqual([])
  })

  it('is not claimed by others while it is in flight', async () => {
    const { url } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    const writing = Promise.withResolvers<void>()
    const handOver = testHandOver({ ...deps, db: landingAfter(deps.db, writing.promise) })
    await acceptorFor(deps, handOver).accept(newDelivery(okImage().body))
    const start = Date.now()
    for (const seconds of [4, 8, 12]) {
      deps.setNow(new Date(start + seconds * 1000))
      await handOver.renewLeases()
      expect(await claimDeliveries(deps.db, { limit: 1, maxBytes: 1000, now: deps.time() })).toEqual([])
    }
    writing.resolve()
    await handOver.idle()
  })

  it('lands an OK at once with the first link, and makes its next poll due', async () => {
    const { url, sql } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    const handOver = testHandOver(deps)
    const picture = okImage()
    await acceptorFor(deps, handOver).accept(newDelivery(picture.body))
    await handOver.idle()
    expect(
      await sql`select r.status, r.media_complete, q.next_poll_at <= ${deps.clock()} as is_due
        from mediadock.results r join mediadock.requests q using (request_id) where request_id = ${picture.requestId}`,
    ).toEqual([{ status: 'COMPLETED', media_complete: false, is_due: true }])
    expect(await sql`select url from mediadock.media where request_id = ${picture.requestId}`).toHaveLength(1)
  })

  it('reports being behind while more waits than two batches write', async () => {
    const { url } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    const writing = Promise.withResolvers<void>()
    const handOver = testHandOver({ ...deps, db: aroundStatements(deps.db, (run) => writing.promise.then(run)) })
    const acceptor = acceptorFor(deps, handOver)
    // Two batches are being written, of one row and of at most 500. The others wait.
    await acceptor.accept(newDelivery(failed().body))
    await Promise.all(Array.from({ length: 900 }, () => acceptor.accept(newDelivery(failed().body))))
    expect(handOver.isBehind()).toBe(true)
    writing.resolve()
    await handOver.idle()
    expect(handOver.isBehind()).toBe(false)
  })

  it('sees earlier ones of its request, while two batches are written at a time', async () => {
    const { url, sql } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url, max: 6 })
    let running = 0
    let most = 0
    const db = aroundStatements(deps.db, async (run) => {
      running += 1
      most = Math.max(most, running)
      await delay(20)
      return run().finally(() => (running -= 1))
    })
    const handOver = testHandOver({ ...deps, db })
    const acceptor = acceptorFor(deps, handOver)
    const { requestId } = failed()
    for (let n = 0; n < 5; n += 1) {
      await acceptor.accept(newDelivery(failedWith(requestId, n)))
      await Promise.all(Array.from({ length: 60 }, () => acceptor.accept(newDelivery(failed().body))))
    }
    await handOver.idle()
    expect(most).toBe(2)
    expect(await sql`select from mediadock.inbox`).toEqual([])
    // Each saw what the ones before it had written.
    expect(
      await sql`select outcome, count(*)::int as n from mediadock.attempts where outcome <> 'landed' group by outcome`,
    ).toEqual([{ outcome: 'no_effect', n: 4 }])
  })
  it('lands while a batch of previously claimed deliveries is still being written', async () => {
    const { url, sql } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    const written = Promise.withResolvers<void>()
    let isFirst = true
    const db = aroundStatements(deps.db, async (run, text) => {
      const mustWait = isFirst && text.includes('insert into mediadock.requests')
      if (mustWait) {
        isFirst = false
        await written.promise
      }
      return run()
    })
    const handOver = testHandOver({ ...deps, db })
    await store(deps.db, [failed().body])
    deps.setNow(new Date(Date.now() + 1000))
    expect(await claimDeliveries(deps.db, { limit: 1, maxBytes: 1000, now: deps.time() })).toHaveLength(1)
    deps.setNow(new Date(Date.now() + (inboxLeaseSeconds + 2) * 1000))
    await handOver.claimSome()
    expect(await sql`select claims from mediadock.inbox`).toEqual([{ claims: 2 }])
    await eventually(() => !isFirst)

    const fresh = failed()
    await acceptorFor(deps, handOver).accept(newDelivery(fresh.body))
    await eventually(
      async () => (await sql`select from mediadock.results where request_id = ${fresh.requestId}`).length === 1,
    )
    expect(await sql`select from mediadock.results`).toHaveLength(1)
    written.resolve()
    await handOver.idle()
    expect(await sql`select from mediadock.results`).toHaveLength(2)
  })
})
