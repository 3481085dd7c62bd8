import { describe, expect, it } from 'vitest'
import type { Fetched } from '../../../src/receiver/fetching/fetcher.ts'
import { createAcceptor } from '../../../src/receiver/intake/accept.ts'
import { claim, leaseSeconds } from '../../../src/receiver/landing/inbox.ts'
import { withTestDatabase, usualServers } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { aroundStatements } from '../../support/statements.ts'
import { failed, okImage } from '../../support/webhooks.ts'
import { allLanded, testLander } from '../../support/work-once.ts'
import { createTestWorker, newDelivery, store } from '../../support/worker.ts'

/* What a process holds: for how long it is its own, and when it no longer is. */

const unreachable: Fetched = { answer: { kind: 'unreachable', detail: 'nobody is there' }, keyName: 'live' }
const later = (date: Date, seconds: number) => new Date(date.getTime() + seconds * 1000)

describe.each(usualServers)('on %s: what is held', (server) => {
  it('is renewed in time, however long storing it took', async () => {
    const { url } = await withTestDatabase(server)
    const answer = Promise.withResolvers<Fetched>()
    const deps = createTestWorker({ databaseUrl: url, fetch: () => answer.promise })
    const lander = testLander(deps)
    const start = deps.clock()
    const slow = aroundStatements(deps.db, async (run) => {
      const stored = await run()
      deps.setNow(later(start, 4))
      return stored
    })
    const acceptor = createAcceptor({ db: slow, logger: deps.logger, handover: lander, onStored: () => {} })
    await acceptor.accept(newDelivery(okImage().body))
    await lander.renewClaims()
    deps.setNow(later(start, leaseSeconds + 0.5))
    expect(await claim(deps.db, { lane: 'fetch', limit: 1, maxBytes: 1000, now: deps.clock() })).toEqual([])
    answer.resolve(unreachable)
    await allLanded(lander)
  })

  it('is renewed in time, however long claiming it took', async () => {
    const { url } = await withTestDatabase(server)
    const answer = Promise.withResolvers<Fetched>()
    const deps = createTestWorker({ databaseUrl: url, fetch: () => answer.promise })
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
    const lander = testLander({ ...deps, db: slow })
    await lander.claimSome('fetch')
    await lander.renewClaims()
    deps.setNow(later(start, leaseSeconds + 0.5))
    expect(await claim(deps.db, { lane: 'fetch', limit: 1, maxBytes: 1000, now: deps.clock() })).toEqual([])
    answer.resolve(unreachable)
    await allLanded(lander)
  })

  it('is held once where this process claims it again after its lease ended, and settled by that claim', async () => {
    const { url, sql } = await withTestDatabase(server)
    const answer = Promise.withResolvers<Fetched>()
    const deps = createTestWorker({ databaseUrl: url, fetch: () => answer.promise })
    const lander = testLander(deps)
    const acceptor = createAcceptor({ db: deps.db, logger: deps.logger, handover: lander, onStored: () => {} })
    await acceptor.accept(newDelivery(okImage().body))
    deps.setNow(later(deps.clock(), leaseSeconds + 1))
    expect(await lander.claimSome('fetch')).toMatchObject({ claimed: 1 })
    answer.resolve(unreachable)
    await allLanded(lander)
    expect(await sql`select from mediadock.inbox`).toEqual([])
    expect(await sql`select outcome from mediadock.attempts`).toEqual([])
  })

  it('is not renewed once it is put off for later, while others of its batch are still being landed', async () => {
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
    const lander = testLander({ ...deps, db })
    await store(deps.db, [refused.body])
    deps.setNow(later(deps.clock(), 0.5))
    await store(deps.db, [other.body])
    deps.setNow(later(deps.clock(), 1))
    await lander.claimSome('direct')
    await eventually(() => isHeldUp)
    const before = await putOff()
    isHeldUp = false
    deps.setNow(later(deps.clock(), 4))
    const renewed = lander.renewClaims()
    mayGoOn.resolve()
    await renewed
    expect(await putOff()).toBe(before)
    await allLanded(lander)
  })
})
