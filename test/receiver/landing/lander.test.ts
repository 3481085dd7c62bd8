import { setTimeout as delay } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { createAcceptor, type Acceptor } from '../../../src/receiver/intake/accept.ts'
import { claim, leaseSeconds } from '../../../src/receiver/landing/inbox.ts'
import { createLander, type Lander } from '../../../src/receiver/landing/lander.ts'
import type { WorkerDeps } from '../../../src/receiver/landing/worker.ts'
import { withTestDatabase, usualServers } from '../../support/database.ts'
import { aroundStatements, landingAfter } from '../../support/statements.ts'
import { failed, okImage } from '../../support/webhooks.ts'
import { testLander, workOnce } from '../../support/work-once.ts'
import { createTestWorker, newDelivery } from '../../support/worker.ts'

const acceptorFor = (deps: WorkerDeps, lander: Lander): Acceptor =>
  createAcceptor({ db: deps.db, logger: deps.logger, handover: lander, onStored: () => {} })

const failedWith = (requestId: string, n: number): Buffer =>
  Buffer.from(
    JSON.stringify({ request_id: requestId, status: 'ERROR', error: { code: 'GENERATION_FAILED', message: `${n}` } }),
  )

describe.each(usualServers)('on %s: what was just accepted', (server) => {
  it('lands without being claimed', async () => {
    const { url, sql } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    const lander = testLander(deps)
    const acceptor = acceptorFor(deps, lander)
    const samples = Array.from({ length: 40 }, () => failed())
    await Promise.all(samples.map(({ body }) => acceptor.accept(newDelivery(body))))
    await lander.idle()
    expect(await sql`select status from mediadock.results where status = 'FAILED'`).toHaveLength(40)
    expect(await sql`select from mediadock.inbox`).toEqual([])
  })

  it('is stored for whoever claims it, where there is no room to hold it', async () => {
    const { url, sql } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    // Postgres is asked for nothing: what is taken stays held.
    const lander = createLander({
      ...deps,
      db: aroundStatements(deps.db, () => new Promise(() => {})),
      rest: async () => {},
      wake: () => {},
      signal: new AbortController().signal,
    })
    const acceptor = acceptorFor(deps, lander)
    await Promise.all(Array.from({ length: 1500 }, () => acceptor.accept(newDelivery(failed().body))))
    const [inbox] = await sql`select count(*) filter (where claims = 1 and due_at > now())::int as held,
      count(*) filter (where claims = 0 and due_at <= now())::int as waiting from mediadock.inbox`
    expect(inbox).toEqual({ held: 1000, waiting: 500 })
    // Of another key, whose deliveries wait for none of those.
    await Promise.all(
      Array.from({ length: 300 }, () => acceptor.accept({ ...newDelivery(failed().body), keyName: 'sandbox' })),
    )
    expect(
      await sql`select count(*)::int as held from mediadock.inbox join mediadock.deliveries on id = delivery_id where key_name = 'sandbox' and claims = 1`,
    ).toEqual([{ held: 250 }])
  })

  it('is landed by another as soon as its lease ends, when the process that held it has died', async () => {
    const { url, sql } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    const dead = { ...testLander(deps), take: () => {} }
    const acceptor = acceptorFor(deps, dead)
    await Promise.all(Array.from({ length: 20 }, () => acceptor.accept(newDelivery(failed().body))))
    expect(await workOnce(deps)).toMatchObject({ claimed: 0 })
    expect(leaseSeconds).toBeLessThan(8)
    deps.setNow(new Date(Date.now() + leaseSeconds * 1000 + 1))
    expect(await workOnce(deps)).toMatchObject({ claimed: 20, landed: 20 })
    expect(await sql`select from mediadock.inbox`).toEqual([])
  })

  it('is kept from others for as long as it is held', async () => {
    const { url } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    const writing = Promise.withResolvers<void>()
    const lander = testLander({ ...deps, db: landingAfter(deps.db, writing.promise) })
    await acceptorFor(deps, lander).accept(newDelivery(okImage().body))
    const start = Date.now()
    for (const seconds of [4, 8, 12]) {
      deps.setNow(new Date(start + seconds * 1000))
      await lander.renewClaims()
      expect(await claim(deps.db, { limit: 1, maxBytes: 1000, now: deps.clock() })).toEqual([])
    }
    writing.resolve()
    await lander.idle()
  })

  it('lands an OK at once with the first link, and makes its next poll due', async () => {
    const { url, sql } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    const lander = testLander(deps)
    const picture = okImage()
    await acceptorFor(deps, lander).accept(newDelivery(picture.body))
    await lander.idle()
    expect(
      await sql`select r.status, r.media_complete, q.next_poll_at <= ${deps.clock()} as is_due
        from mediadock.results r join mediadock.requests q using (request_id) where request_id = ${picture.requestId}`,
    ).toEqual([{ status: 'COMPLETED', media_complete: false, is_due: true }])
    expect(await sql`select url from mediadock.media where request_id = ${picture.requestId}`).toHaveLength(1)
  })

  it('makes it behind while more waits than a batch or two write', async () => {
    const { url } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    const writing = Promise.withResolvers<void>()
    const lander = testLander({ ...deps, db: aroundStatements(deps.db, (run) => writing.promise.then(run)) })
    const acceptor = acceptorFor(deps, lander)
    // Of one request, which is being written: they have to wait.
    const { requestId } = failed()
    await acceptor.accept(newDelivery(failedWith(requestId, 0)))
    await Promise.all(Array.from({ length: 300 }, (_, n) => acceptor.accept(newDelivery(failedWith(requestId, n + 1)))))
    expect(lander.isBehind()).toBe(true)
    writing.resolve()
    await lander.idle()
    expect(lander.isBehind()).toBe(false)
  })

  it('of one request is never in two batches at a time, and two batches are written at a time', async () => {
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
    const lander = testLander({ ...deps, db })
    const acceptor = acceptorFor(deps, lander)
    const { requestId } = failed()
    for (let n = 0; n < 5; n += 1) {
      await acceptor.accept(newDelivery(failedWith(requestId, n)))
      await Promise.all(Array.from({ length: 60 }, () => acceptor.accept(newDelivery(failed().body))))
    }
    await lander.idle()
    expect(most).toBe(2)
    expect(await sql`select from mediadock.inbox`).toEqual([])
    // Each saw what the ones before it had written.
    expect(
      await sql`select outcome, count(*)::int as n from mediadock.attempts where outcome <> 'landed' group by outcome`,
    ).toEqual([{ outcome: 'no_effect', n: 4 }])
  })
})
