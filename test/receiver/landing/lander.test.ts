import { setTimeout as delay } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import type { Fetched, ResultLookup } from '../../../src/receiver/fetching/fetcher.ts'
import { createAcceptor, type Acceptor } from '../../../src/receiver/intake/accept.ts'
import { claim, leaseSeconds } from '../../../src/receiver/landing/inbox.ts'
import { createLander, type Lander } from '../../../src/receiver/landing/lander.ts'
import type { WorkerDeps } from '../../../src/receiver/landing/worker.ts'
import { resultSchema } from '../../../src/wire/schemas.ts'
import { withTestDatabase, usualServers } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { imageResult } from '../../support/provider-stand.ts'
import { aroundStatements } from '../../support/statements.ts'
import { failed, okImage } from '../../support/webhooks.ts'
import { allLanded, testLander, workOnce } from '../../support/work-once.ts'
import { createTestWorker, newDelivery } from '../../support/worker.ts'

const acceptorFor = (deps: WorkerDeps, lander: Lander): Acceptor =>
  createAcceptor({ db: deps.db, logger: deps.logger, handover: lander, onStored: () => {} })

const failedWith = (requestId: string, n: number): Buffer =>
  Buffer.from(
    JSON.stringify({ request_id: requestId, status: 'ERROR', error: { code: 'GENERATION_FAILED', message: `${n}` } }),
  )

const unreachable = { kind: 'unreachable' as const, detail: 'nobody is there' }

describe.each(usualServers)('on %s: what was just accepted', (server) => {
  it('lands without being claimed', async () => {
    const { url, sql } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    const lander = testLander(deps)
    const acceptor = acceptorFor(deps, lander)
    const samples = Array.from({ length: 40 }, () => failed())
    await Promise.all(samples.map(({ body }) => acceptor.accept(newDelivery(body))))
    await allLanded(lander)
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
      await sql`select count(*)::int as held from mediadock.inbox where key_name = 'sandbox' and claims = 1`,
    ).toEqual([{ held: 250 }])
  })

  it('is landed by another as soon as its lease ends, when the process that held it has died', async () => {
    const { url, sql } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    const dead = { ...testLander(deps), take: () => {} }
    const acceptor = acceptorFor(deps, dead)
    await Promise.all(Array.from({ length: 20 }, () => acceptor.accept(newDelivery(failed().body))))
    expect(await workOnce(deps, 'direct')).toMatchObject({ claimed: 0 })
    expect(leaseSeconds).toBeLessThan(8)
    deps.setNow(new Date(Date.now() + leaseSeconds * 1000 + 1))
    expect(await workOnce(deps, 'direct')).toMatchObject({ claimed: 20, landed: 20 })
    expect(await sql`select from mediadock.inbox`).toEqual([])
  })

  it('is kept from others for as long as it is held', async () => {
    const { url } = await withTestDatabase(server)
    const answer = Promise.withResolvers<Fetched>()
    const deps = createTestWorker({ databaseUrl: url, fetch: () => answer.promise })
    const lander = testLander(deps)
    await acceptorFor(deps, lander).accept(newDelivery(okImage().body))
    const start = Date.now()
    for (const seconds of [4, 8, 12]) {
      deps.setNow(new Date(start + seconds * 1000))
      await lander.renewClaims()
      expect(await claim(deps.db, { lane: 'fetch', limit: 1, maxBytes: 1000, now: deps.clock() })).toEqual([])
    }
    answer.resolve({ answer: unreachable, keyName: 'live' })
    await allLanded(lander)
  })

  it('is told as its webhook says after a while without an answer, which then completes it; no other waits', async () => {
    const { url, sql } = await withTestDatabase(server)
    const pictures = Array.from({ length: 40 }, () => okImage())
    const [hanging] = pictures
    const answer = Promise.withResolvers<void>()
    const asked: string[] = []
    const fetch = async ({ requestId, keyName }: ResultLookup): Promise<Fetched> => {
      asked.push(requestId)
      if (requestId === hanging?.requestId) await answer.promise
      const at = new Date().toISOString()
      const images = [0, 1].map((n) => ({ url: `https://media.test/${requestId}/${n}`, width: 8, height: 8 }))
      const result = {
        request_id: requestId,
        status: 'COMPLETED' as const,
        model: 'm',
        output: { images },
        cost: 1,
        created_at: at,
        completed_at: at,
      }
      return { answer: { kind: 'result', result }, keyName }
    }
    const deps = createTestWorker({ databaseUrl: url, fetch })
    const lander = testLander(deps, { patienceMs: 3000 })
    const acceptor = acceptorFor(deps, lander)
    const complete = async () => (await sql`select from mediadock.results where media_complete`).length
    await Promise.all(pictures.map(({ body }) => acceptor.accept(newDelivery(body))))
    await eventually(async () => (await complete()) === 39)
    expect(await sql`select from mediadock.results where request_id = ${hanging!.requestId}`).toEqual([])
    await lander.idle()
    expect(
      await sql`select status, media_complete from mediadock.results where request_id = ${hanging!.requestId}`,
    ).toEqual([{ status: 'COMPLETED', media_complete: false }])
    // Nobody asks again while the answer may still come.
    const [later] =
      await sql`select next_poll_at > now() + interval '5 s' as later from mediadock.requests where request_id = ${hanging!.requestId}`
    expect(later).toEqual({ later: true })
    answer.resolve()
    await allLanded(lander)
    expect(await complete()).toBe(40)
    expect(await sql`select from mediadock.media where request_id = ${hanging!.requestId}`).toHaveLength(2)
    expect(asked.toSorted()).toEqual(pictures.map(({ requestId }) => requestId).toSorted())
  })

  it('lands with what its webhook carried, without a call, while landing is behind', async () => {
    const { url, sql } = await withTestDatabase(server)
    let asked = 0
    const fetch = async ({ keyName }: ResultLookup): Promise<Fetched> => {
      asked += 1
      return { answer: unreachable, keyName }
    }
    const deps = createTestWorker({ databaseUrl: url, fetch })
    const writing = Promise.withResolvers<void>()
    const lander = testLander({ ...deps, db: aroundStatements(deps.db, (run) => writing.promise.then(run)) })
    const acceptor = acceptorFor(deps, lander)
    // Of one request, which is being written: they have to wait.
    const { requestId } = failed()
    await acceptor.accept(newDelivery(failedWith(requestId, 0)))
    await Promise.all(Array.from({ length: 300 }, (_, n) => acceptor.accept(newDelivery(failedWith(requestId, n + 1)))))
    expect(lander.isBehind()).toBe(true)
    const picture = okImage()
    await acceptor.accept(newDelivery(picture.body))
    writing.resolve()
    await allLanded(lander)
    expect(asked).toBe(0)
    expect(lander.isBehind()).toBe(false)
    expect(await sql`select media_complete from mediadock.results where request_id = ${picture.requestId}`).toEqual([
      { media_complete: false },
    ])
  })

  it('asks for nothing more while large answers wait to be written', async () => {
    const { url, sql } = await withTestDatabase(server)
    let asked = 0
    const fetch = async ({ requestId, keyName }: ResultLookup): Promise<Fetched> => {
      asked += 1
      const images = Array.from({ length: 100 }, (_, n) => ({
        url: `https://media.test/${n}/${'x'.repeat(8000)}`,
        width: 1,
        height: 1,
      }))
      const result = resultSchema.parse({ ...imageResult(requestId), output: { images } })
      return { answer: { kind: 'result', result }, keyName }
    }
    const deps = createTestWorker({ databaseUrl: url, fetch })
    const writing = Promise.withResolvers<void>()
    const lander = testLander({ ...deps, db: aroundStatements(deps.db, (run) => writing.promise.then(run)) })
    const acceptor = acceptorFor(deps, lander)
    // Its landing waits, and so do all that come after it.
    await acceptor.accept(newDelivery(failed().body))
    await Promise.all(Array.from({ length: 48 }, () => acceptor.accept(newDelivery(okImage().body))))
    await eventually(() => lander.isBehind())
    writing.resolve()
    await allLanded(lander)
    expect(asked).toBe(16)
    expect(lander.isBehind()).toBe(false)
    expect(await sql`select from mediadock.results where status = 'COMPLETED' and not media_complete`).toHaveLength(32)
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
    await allLanded(lander)
    expect(most).toBe(2)
    expect(await sql`select from mediadock.inbox`).toEqual([])
    // Each saw what the ones before it had written.
    expect(
      await sql`select outcome, count(*)::int as n from mediadock.attempts where outcome <> 'landed' group by outcome`,
    ).toEqual([{ outcome: 'no_effect', n: 4 }])
  })
})
