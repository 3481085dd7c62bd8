import { randomUUID } from 'node:crypto'
import { describe, expect, it, onTestFinished } from 'vitest'
import { storeDeliveries } from '../../../src/receiver/intake/store.ts'
import { withTestDatabase, usualServers } from '../../support/database.ts'
import { failed } from '../../support/webhooks.ts'
import { workOnce } from '../../support/work-once.ts'
import { createTestWorker, newDelivery, store } from '../../support/worker.ts'

/* One request that cannot be landed now, or has far too many deliveries: who else waits for it. */

describe.each(usualServers)('landing beside a request that holds up (%s)', (server) => {
  it('rows that an open transaction has made are put off without a failure; their neighbours land at once', async () => {
    const { url, sql } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    const held = Array.from({ length: 32 }, () => failed())
    const others = held.map(() => failed())
    const tracker = await sql.reserve()
    onTestFinished(() => tracker.release())
    await tracker`begin`
    await tracker`insert into mediadock.requests (request_id, model) select id, 'mine' from unnest(${held.map(({ requestId }) => requestId)}::uuid[]) as id`
    await store(
      deps.db,
      held.flatMap((one, at) => [one.body, others[at]?.body ?? one.body]),
    )
    deps.setNow(new Date(Date.now() + 1000))
    const started = performance.now()
    expect(await workOnce(deps)).toMatchObject({ claimed: 64, landed: 32, failed: 32 })
    // One after the other each would keep all of them waiting as long as the first: half a minute.
    expect(performance.now() - started).toBeLessThan(10_000)
    expect(await sql`select distinct failures, due_at > ${deps.clock()} as later from mediadock.inbox`).toEqual([
      { failures: 0, later: true },
    ])

    await tracker`commit`
    deps.setNow(new Date(Date.now() + 60_000))
    expect(await workOnce(deps)).toMatchObject({ claimed: 32, landed: 32 })
    expect(await sql`select distinct status, model from mediadock.requests where model is not null`).toEqual([
      { status: 'FAILED', model: 'mine' },
    ])
  })

  it('many rows that an open transaction holds are put off together; nobody waits for one after the other', async () => {
    const { url, sql } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    const samples = Array.from({ length: 64 }, () => failed())
    const held = samples.filter((_, at) => at % 8 === 0).map(({ requestId }) => requestId)
    await sql`insert into mediadock.requests (request_id, key_name) select id, 'live' from unnest(${held}::uuid[]) id`
    const reader = await sql.reserve()
    onTestFinished(() => reader.release())
    await reader`begin`
    await reader`select from mediadock.requests for share`
    await store(
      deps.db,
      samples.map(({ body }) => body),
    )
    deps.setNow(new Date(Date.now() + 1000))
    const started = performance.now()
    expect(await workOnce(deps)).toMatchObject({ claimed: 64, landed: 56, failed: 8 })
    expect(performance.now() - started).toBeLessThan(5000)
    expect(await sql`select from mediadock.inbox where failures = 0 and due_at > ${deps.clock()}`).toHaveLength(8)

    await reader`commit`
    deps.setNow(new Date(Date.now() + 60_000))
    expect(await workOnce(deps)).toMatchObject({ claimed: 8, landed: 8 })
  })

  it('hundreds of deliveries of one request take turns; what came after them lands in the next round', async () => {
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
      { claimed: 500, landed: 4, deferred: 496 },
      { claimed: 101, landed: 5, deferred: 96 },
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
