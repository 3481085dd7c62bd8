import { randomUUID } from 'node:crypto'
import { describe, expect, it, onTestFinished } from 'vitest'
import { storeDeliveries } from '../../../src/receiver/intake/store.ts'
import { withTestDatabase, usualServers } from '../../support/database.ts'
import { aroundStatements } from '../../support/statements.ts'
import { failed } from '../../support/webhooks.ts'
import { workOnce } from '../../support/work-once.ts'
import { createTestWorker, newDelivery, store } from '../../support/worker.ts'

/* One request that cannot be landed now, or has far too many deliveries: who else waits for it. */

describe.each(usualServers)('landing beside a locked request (%s)', (server) => {
  it('600 rows inserted by an open transaction are postponed in a few statements, and their neighbours land', async () => {
    const { url, sql } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    const locked = Array.from({ length: 600 }, () => failed())
    const others = Array.from({ length: 60 }, () => failed())
    const tracker = await sql.reserve()
    onTestFinished(() => tracker.release())
    await tracker`begin`
    await tracker`
      insert into mediadock.requests (request_id, model)
      select id, 'mine' from unnest(${locked.map(({ requestId }) => requestId)}::uuid[]) as id`
    for (const part of [0, 1]) {
      const mixed = [...locked.slice(part * 300, (part + 1) * 300), ...others.slice(part * 30, (part + 1) * 30)]
      await store(
        deps.db,
        mixed.toSorted((a, b) => (a.requestId < b.requestId ? -1 : 1)).map(({ body }) => body),
      )
    }
    deps.setNow(new Date(Date.now() + 1000))
    let statements = 0
    const db = aroundStatements(deps.db, (run) => {
      statements += 1
      return run()
    })
    let rounds = 0
    while ((await workOnce({ ...deps, db })).claimed > 0) rounds += 1
    // Claim, land in vain, find what is locked, land the others by either statement, put off, and a few to spare.
    expect(statements).toBeLessThan(rounds * 8)
    expect(await sql`select from mediadock.results where landed_at is not null`).toHaveLength(others.length)
    expect(await sql`select distinct failures, due_at > ${deps.clock()} as later from mediadock.inbox`).toEqual([
      { failures: 0, later: true },
    ])

    await tracker`commit`
    deps.setNow(new Date(Date.now() + 60_000))
    while ((await workOnce(deps)).claimed > 0);
    expect(
      await sql`select status, model, count(*)::int as n from mediadock.requests where model = 'mine' group by 1, 2`,
    ).toEqual([{ status: 'FAILED', model: 'mine', n: locked.length }])
  })

  it.each(['for share', 'for update'])(
    'rows that an open transaction locks %s are postponed in a few statements',
    async (how) => {
      const { url, sql } = await withTestDatabase(server)
      const deps = createTestWorker({ databaseUrl: url })
      const samples = Array.from({ length: 64 }, () => failed())
      const locked = samples.filter((_, at) => at % 8 === 0).map(({ requestId }) => requestId)
      await sql`insert into mediadock.requests (request_id, key_name) select id, 'live' from unnest(${locked}::uuid[]) id`
      const reader = await sql.reserve()
      onTestFinished(() => reader.release())
      await reader`begin`
      await reader.unsafe(`select from mediadock.requests ${how}`)
      await store(
        deps.db,
        samples.map(({ body }) => body),
      )
      deps.setNow(new Date(Date.now() + 1000))
      let statements = 0
      const db = aroundStatements(deps.db, (run) => {
        statements += 1
        return run()
      })
      expect(await workOnce({ ...deps, db })).toMatchObject({ claimed: 64, landed: 56, failed: 8 })
      expect(statements).toBeLessThan(8)
      expect(await sql`select from mediadock.inbox where failures = 0 and due_at > ${deps.clock()}`).toHaveLength(8)

      await reader`commit`
      deps.setNow(new Date(Date.now() + 60_000))
      expect(await workOnce(deps)).toMatchObject({ claimed: 8, landed: 8 })
    },
  )

  it('a failure of Postgres while locked rows are postponed fails their batch; they land after their leases', async () => {
    const { url, sql } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    const sample = failed()
    await sql`insert into mediadock.requests (request_id, key_name) values (${sample.requestId}, 'live')`
    const reader = await sql.reserve()
    onTestFinished(() => reader.release())
    await reader`begin`
    await reader`select from mediadock.requests for update`
    await store(deps.db, [sample.body])
    deps.setNow(new Date(Date.now() + 1000))
    // Not prepared are the statement that finds the locks and the one that returns the claims.
    let plain = 0
    const db = aroundStatements(deps.db, (run, text) => {
      if (text === '') plain += 1
      if (text === '' && plain === 2) throw Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
      return run()
    })
    await expect(workOnce({ ...deps, db })).rejects.toMatchObject({ code: 'ECONNREFUSED' })

    await reader`commit`
    deps.setNow(new Date(Date.now() + 60_000))
    expect(await workOnce(deps)).toMatchObject({ claimed: 1, landed: 1 })
  })

  it('hundreds of deliveries of one request take turns; later ones of other requests land in the next round', async () => {
    const { url, sql } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    const requestId = randomUUID()
    const before = new Date(Date.now() - 60_000)
    const flood = Array.from({ length: 600 }, (_, n) =>
      newDelivery(
        Buffer.from(
          JSON.stringify({ request_id: requestId, status: 'ERROR', error: { code: 'X', message: String(n) } }),
        ),
        before,
      ),
    )
    await storeDeliveries(
      deps.db,
      flood.toSorted((a, b) => (a.id < b.id ? -1 : 1)),
    )
    const innocent = failed()
    await store(deps.db, [innocent.body])
    deps.setNow(new Date(Date.now() + 1000))
    const rounds = [await workOnce(deps), await workOnce(deps)]
    expect(rounds).toMatchObject([
      { claimed: 500, landed: 4 },
      { claimed: 101, landed: 5 },
    ])
    expect(await sql`select status from mediadock.requests where request_id = ${innocent.requestId}`).toEqual([
      { status: 'FAILED' },
    ])
    // None is lost: each has its turn, and the claim that it was put off with is no failure.
    expect(await sql`select count(*)::int as n, max(failures) as failures from mediadock.inbox`).toEqual([
      { n: 592, failures: 0 },
    ])
  })
})
