import { setTimeout as delay } from 'node:timers/promises'
import { Counter } from 'prom-client'
import { describe, expect, it, onTestFinished } from 'vitest'
import { leaseSeconds } from '../../../src/platform/postgres/lease-keeper.ts'
import { createFetcher } from '../../../src/receiver/fetching/fetcher.ts'
import { createSourceClient } from '../../../src/receiver/fetching/source-client.ts'
import { claimDue } from '../../../src/receiver/reconciling/poll-claims.ts'
import { endPoll } from '../../../src/receiver/reconciling/polling.ts'
import * as reconciler from '../../../src/receiver/reconciling/reconciler.ts'
import { long } from '../../chaos/length.ts'
import { testServers, withTestDatabase, type TestDatabase, usualServers } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { imageResult, json, startProviderStand } from '../../support/provider-stand.ts'
import { keysOf, liveKey, sandboxKey } from '../../support/receiver.ts'
import { countingPool } from '../../support/rows-read.ts'
import { deliver, okImage } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { createTestWorker } from '../../support/worker.ts'

const none = new Set<string>()

/** Incomplete results that were put off for minutes, as an outage does it. */
async function putOff(
  { sql }: TestDatabase,
  { count, at, key = 'live' }: { count: number; at: Date; key?: string },
): Promise<void> {
  await sql`
    with made as (select gen_random_uuid() as id from generate_series(1, ${count}::int)),
    media as (insert into mediadock.media (request_id, kind, position, url) select id, 'image', 0, 'https://media.test/a' from made)
    insert into mediadock.requests (request_id, key_name, status, source, output, landed_at, next_poll_at, polled_at, poll_outcome, polls)
    select id, ${key}, 'COMPLETED', 'webhook', '{"images":[{"url":"https://media.test/a"}]}', ${at}::timestamptz,
      ${at}::timestamptz + interval '4 minutes', ${at}::timestamptz, 'unreachable', 9 from made`
}

/** Two processes with one database: each with its own view of the provider. */
async function twoProcesses(server: (typeof testServers)[number]) {
  const database = await withTestDatabase(server)
  const stand = await startProviderStand()
  onTestFinished(stand.close)
  const keys = keysOf(liveKey, sandboxKey)
  let now = new Date()
  const process = () => {
    const deps = createTestWorker({ databaseUrl: database.url, keys: () => keys, clock: () => now })
    const calls = new Counter({ name: 'unread', help: 'unread', labelNames: ['operation', 'outcome'], registers: [] })
    const client = createSourceClient({ baseUrl: stand.url, fetch: globalThis.fetch, clock: deps.clock })
    deps.fetchResult = createFetcher({ ...deps, client, calls })
    return deps
  }
  return {
    database,
    stand,
    deps: [process(), process()] as const,
    now: () => now,
    later: (seconds: number) => {
      now = new Date(now.getTime() + seconds * 1000)
    },
  }
}

const incomplete = async ({ sql }: TestDatabase) =>
  (await sql`select from mediadock.results where not media_complete`).length

describe.each(usualServers)('when the provider is back (%s)', (server) => {
  it.each([
    ['itself', 0],
    ['another process, after the one that saw it has died', 1],
  ])('postponed polls are due at once, found by %s', async (_who, finder) => {
    const { database, stand, deps, now, later } = await twoProcesses(server)
    stand.answer((_id, req) => req.socket.destroy())
    await putOff(database, { count: 40, at: new Date(now().getTime() - 300_000) })
    await reconciler.runOnce(deps[0])
    expect(await database.sql`select from mediadock.call_budgets where failing_since is not null`).toHaveLength(1)

    stand.answer((id, _req, res) => json(res, 200, imageResult(id)))
    later(20)
    // A poll that is due, or a new delivery, detects the recovery.
    await database.sql`update mediadock.requests set next_poll_at = ${now()} where request_id = (select min(request_id::text)::uuid from mediadock.requests)`
    await reconciler.runOnce(deps[finder]!)
    await reconciler.runOnce(deps[finder]!)
    await reconciler.runOnce(deps[finder]!)
    expect(await incomplete(database)).toBe(0)
    expect(await database.sql`select from mediadock.call_budgets where failing_since is not null`).toHaveLength(0)
  })

  it('polls postponed after the recovery keep their own time', async () => {
    const { database, stand, deps, now, later } = await twoProcesses(server)
    stand.answer((id, _req, res) => json(res, 200, imageResult(id)))
    await database.sql`insert into mediadock.call_budgets (key_name, slots, slots_until, granted, recovered_at) values ('live', array_fill(0, array[61]), 0, true, ${now()})`
    later(10)
    await putOff(database, { count: 5, at: now() })
    expect(await reconciler.runOnce(deps[0])).toMatchObject({ scanned: 0 })
  })

  it('a request that was given up, of which an extra poll failed in the outage, is not polled', async () => {
    const { database, deps, now, later } = await twoProcesses(server)
    await putOff(database, { count: 1, at: now() })
    await database.sql`update mediadock.requests set next_poll_at = 'infinity'`
    later(10)
    await database.sql`insert into mediadock.call_budgets (key_name, slots, slots_until, granted, recovered_at) values ('live', array_fill(0, array[61]), 0, true, ${now()})`
    expect(await reconciler.runOnce(deps[0])).toMatchObject({ scanned: 0 })
  })

  it('an outage of seconds brings no poll forward', async () => {
    const { database, stand, deps, now, later } = await twoProcesses(server)
    stand.answer((id, _req, res) => json(res, 200, imageResult(id)))
    await database.sql`insert into mediadock.call_budgets (key_name, slots, slots_until, granted, failing_since) values ('live', array_fill(0, array[61]), 0, true, ${now()})`
    await putOff(database, { count: 5, at: now() })
    later(14)
    const [own] =
      await database.sql`update mediadock.requests set next_poll_at = ${now()} where request_id = (select min(request_id::text)::uuid from mediadock.requests) returning request_id`
    expect(await reconciler.runOnce(deps[0])).toMatchObject({ scanned: 1, landed: 1 })
    expect(await database.sql`select request_id from mediadock.results where media_complete`).toEqual([own])
  })

  it('a poll that fails again waits, and is not claimed twice for one recovery', async () => {
    const { database, stand, deps, now, later } = await twoProcesses(server)
    await putOff(database, { count: 20, at: new Date(now().getTime() - 300_000) })
    // By a clock that is ahead of ours.
    await database.sql`insert into mediadock.call_budgets (key_name, slots, slots_until, granted, recovered_at) values ('live', array_fill(0, array[61]), 0, true, ${new Date(now().getTime() + 3000)})`
    expect(await claimDue(deps[0], { limit: 16, resting: none })).toHaveLength(16)
    expect(await claimDue(deps[1], { limit: 16, resting: none })).toHaveLength(4)
    expect(await claimDue(deps[1], { limit: 16, resting: none })).toHaveLength(0)
    // Too few to make the provider count as down.
    await database.sql`delete from mediadock.requests where request_id not in (select request_id from mediadock.requests limit 5)`
    stand.answer((_id, _req, res) => json(res, 500, {}))
    later(61)
    await reconciler.runOnce(deps[0])
    expect(stand.calls).toHaveLength(5)
    await reconciler.runOnce(deps[1])
    expect(stand.calls).toHaveLength(5)
  })

  it('a poll that gets no call then, or whose process dies, stays due', async () => {
    const { database, deps, now, later } = await twoProcesses(server)
    await putOff(database, { count: 2, at: now() })
    later(20)
    await database.sql`insert into mediadock.call_budgets (key_name, slots, slots_until, granted, recovered_at) values ('live', array_fill(0, array[61]), 0, true, ${now()})`
    const claimed = await claimDue(deps[0], { limit: 16, resting: none })
    expect(claimed).toHaveLength(2)
    await endPoll(deps[0], claimed[0]!, 'no_call', { detail: 'quota' })
    expect(await claimDue(deps[1], { limit: 16, resting: none })).toMatchObject([
      { request_id: claimed[0]!.request_id },
    ])
    later(leaseSeconds)
    expect(await claimDue(deps[1], { limit: 16, resting: none })).toHaveLength(2)
  })

  it('a claim among thousands of postponed or waiting polls reads no others', async () => {
    const { database, deps, now } = await twoProcesses(server)
    const long = new Date(now().getTime() - 3_600_000)
    const { reading, close } = countingPool(database.url)
    onTestFinished(close)
    const claiming = (resting = none) =>
      reading(async (db) => (await claimDue({ ...deps[0], db }, { limit: 16, resting })).length)
    // Its plan is made now and kept.
    await claiming()
    await putOff(database, { count: 5000, at: long })
    await database.sql`insert into mediadock.call_budgets (key_name, slots, slots_until, granted, recovered_at) values ('live', array_fill(0, array[61]), 0, true, ${now()})`
    const few = { answer: 16, read: expect.toSatisfy((rows: number) => rows < 200) }
    expect(await claiming()).toEqual(few)
    // All of them due, and then behind a key that gives no call.
    await database.sql`update mediadock.requests set next_poll_at = landed_at, poll_outcome = 'postponed'`
    expect(await claiming()).toEqual(few)
    expect(await claiming(new Set(['live']))).toEqual({ ...few, answer: 0 })
  })

  // With real pauses; the tests above show each rule by the clock of the test.
  it.runIf(long)('all incomplete results are complete within 30 s without an operator', async () => {
    const { database, receiver, stand, stop } = await withReceiver({ server, stand: true, followsUp: true })
    onTestFinished(stop)
    stand.answer((_id, req) => req.socket.destroy())
    for (let n = 0; n < 60; n += 1) await deliver(receiver.webhookUrl, okImage().body)
    await eventually(
      async () => (await database.sql`select from mediadock.results where landed_at is not null`).length === 60,
    )
    // Long enough for the pauses to grow.
    await delay(8000)
    const whileAway = stand.calls.length
    expect(await incomplete(database)).toBe(60)
    // It was left alone: eight in a row, and one about each 5 s.
    expect(whileAway).toBeLessThan(40)
    stand.answer((id, _req, res) => json(res, 200, imageResult(id)))
    await eventually(async () => (await incomplete(database)) === 0, 30_000)
  })
})
