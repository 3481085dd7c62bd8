import { setTimeout as delay } from 'node:timers/promises'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { ResultAnswer } from '../../../src/receiver/fetching/fetcher.ts'
import { claimDue } from '../../../src/receiver/reconciling/poll-claims.ts'
import * as reconciler from '../../../src/receiver/reconciling/reconciler.ts'
import { withTestDatabase, type TestDatabase, usualServers } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { imageResult, json } from '../../support/provider-stand.ts'
import { keysOf, liveKey, sandboxKey } from '../../support/receiver.ts'
import { reportOf } from '../../support/report.ts'
import { deliver, okAudio, okImage, okVideo } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { createTestWorker, testPoller } from '../../support/worker.ts'

const picture = { images: [{ url: 'https://media.test/a.png' }] }
const video = { video: { url: 'https://media.test/a.mp4' } }

type Row = { at: Date; key?: string | null; output?: object; count?: number }

/** Results that have landed incomplete, due at `at`; answers the id of the first. */
async function incomplete(
  { sql }: TestDatabase,
  { at, key = 'live', output = picture, count = 1 }: Row,
): Promise<string> {
  const [kind] = Object.keys(output)
  const rows = await sql`
    with made as (
      select gen_random_uuid() as id from generate_series(1, ${count}::int)
    ),
    media as (
      insert into mediadock.media (request_id, kind, position, url) select id, ${kind === 'images' ? 'image' : 'video'}, 0, 'https://media.test/a' from made
    )
    insert into mediadock.requests (request_id, key_name, status, source, output, landed_at, next_poll_at)
    select id, ${key}, 'COMPLETED', 'webhook', ${sql.json(JSON.parse(JSON.stringify(output)))}, ${at}, ${at} from made returning request_id`
  return rows[0]?.['request_id']
}

const whole = (id: string): ResultAnswer => ({ kind: 'result', report: reportOf(imageResult(id)) })
const none = new Set<string>()

describe.each(usualServers)('following up (%s)', (server) => {
  it('completes incomplete results within seconds, without a run of the reconciler', async () => {
    const { database, receiver, stand, stop } = await withReceiver({ server, stand: true, followsUp: true })
    onTestFinished(stop)
    stand.answer((_id, _req, res) => json(res, 500, {}))
    const samples = [okImage(), okVideo(), okAudio()]
    for (const { body } of samples) await deliver(receiver.webhookUrl, body)
    await eventually(
      async () => (await database.sql`select from mediadock.results where landed_at is not null`).length === 3,
    )
    stand.answer((id, _req, res) => json(res, 200, imageResult(id, 2)))
    await eventually(async () => (await database.sql`select from mediadock.results where media_complete`).length === 3)
    expect(await database.sql`select from mediadock.reconcile_runs`).toHaveLength(0)
  })

  it('is woken by the landing: a result is complete after one call, without waiting for the next round', async () => {
    const { database, receiver, stand, stop } = await withReceiver({ server, stand: true, followsUp: true })
    onTestFinished(stop)
    stand.answer((id, _req, res) => json(res, 200, imageResult(id, 2)))
    const times: number[] = []
    for (let round = 0; round < 5; round += 1) {
      const started = performance.now()
      const { body, requestId } = okImage()
      await deliver(receiver.webhookUrl, body)
      await eventually(
        async () =>
          (await database.sql`select from mediadock.results where request_id = ${requestId} and media_complete`)
            .length === 1,
      )
      times.push(performance.now() - started)
    }
    // Without a landing it looks once a second, so that each round after the first would take a second.
    expect(Math.min(...times.slice(1))).toBeLessThan(900)
    expect(stand.calls).toHaveLength(5)
  })

  it('is not woken by landings of a key without calls', async () => {
    const settings = { fetchRatePerMinute: 1 }
    const { database, receiver, stand, stop } = await withReceiver({ server, stand: true, followsUp: true, settings })
    onTestFinished(stop)
    const { sql } = database
    // Each claim scans this index once. A connection reports its counts at most once a second.
    const claims = async () => {
      await delay(2500)
      const [index] = await sql`select idx_scan from pg_stat_user_indexes where indexrelname = 'requests_doubted'`
      return Number(index?.['idx_scan'])
    }
    stand.answer((_id, _req, res) => json(res, 500, {}))
    for (let n = 0; n < 2; n += 1) await deliver(receiver.webhookUrl, okImage().body)
    await eventually(
      async () => (await sql`select from mediadock.requests where poll_outcome = 'postponed'`).length > 0,
    )
    const before = await claims()
    const started = performance.now()
    for (let n = 0; n < 60; n += 1) await deliver(receiver.webhookUrl, okImage().body)
    const made = (await claims()) - before
    // One a second, and one that finds again every 3 s that there is no call.
    expect(made).toBeLessThan(((performance.now() - started) / 1000) * 2 + 5)
    expect(made).toBeGreaterThan(0)
  })

  it('a hanging poll delays no other, and each lands with its own answer', async () => {
    const database = await withTestDatabase(server)
    const hang = Promise.withResolvers<void>()
    let hanging = ''
    const deps = createTestWorker({
      databaseUrl: database.url,
      fetchResult: async ({ requestId, onGranted }) => {
        onGranted?.()
        if (requestId === hanging) await hang.promise
        return { answer: whole(requestId), keyName: 'live' }
      },
    })
    const at = deps.clock()
    hanging = await incomplete(database, { at: new Date(at.getTime() - 1000) })
    await incomplete(database, { at, count: 60 })
    const poller = testPoller(deps)
    const left = async () =>
      (await database.sql`select request_id from mediadock.results where not media_complete`).map(
        (row) => row['request_id'],
      )
    await eventually(async () => {
      await poller.runOnce()
      return (await left()).length === 1
    }, 5000)
    expect(await left()).toEqual([hanging])
    hang.resolve()
    await poller.idle()
    expect(await left()).toEqual([])
  })

  it('never runs more polls than allowed', async () => {
    const database = await withTestDatabase(server)
    const hang = Promise.withResolvers<void>()
    let calls = 0
    const deps = createTestWorker({
      databaseUrl: database.url,
      fetchResult: async ({ requestId, onGranted }) => {
        onGranted?.()
        calls += 1
        await hang.promise
        return { answer: whole(requestId), keyName: 'live' }
      },
    })
    await incomplete(database, { at: deps.clock(), count: 40 })
    const poller = testPoller(deps)
    expect(await poller.runOnce()).toEqual({ more: true })
    expect(await poller.runOnce()).toEqual({ more: false })
    expect(calls).toBe(16)
    hang.resolve()
    await poller.idle()
  })

  it('shares due polls with other processes and with runs: each is polled once', async () => {
    const database = await withTestDatabase(server)
    const polled: string[] = []
    const deps = createTestWorker({
      databaseUrl: database.url,
      max: 8,
      fetchResult: async ({ requestId, onGranted }) => {
        onGranted?.()
        polled.push(requestId)
        return { answer: whole(requestId), keyName: 'live' }
      },
    })
    await incomplete(database, { at: deps.clock(), count: 200 })
    const [one, other] = [testPoller(deps), testPoller(deps)]
    const drive = async (poller: typeof one) => {
      while ((await poller.runOnce()).more);
      await poller.idle()
    }
    await Promise.all([drive(one), reconciler.runOnce(deps), drive(other), reconciler.runOnce(deps)])
    expect(polled).toHaveLength(200)
    expect(new Set(polled).size).toBe(200)
  })

  it('takes requests that a caller waits for first, then the longest due', async () => {
    const database = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: database.url })
    const at = (seconds: number) => new Date(deps.clock().getTime() - seconds * 1000)
    const longest = await incomplete(database, { at: at(900), output: video })
    const other = await incomplete(database, { at: at(30) })
    const awaited = await incomplete(database, { at: at(10) })
    const notDue = await incomplete(database, { at: at(-10) })
    deps.awaited = () => [awaited, notDue]
    const due = await claimDue(deps, { limit: 16, resting: none })
    expect(due.map(({ request_id }) => request_id)).toEqual([awaited, longest, other])
  })

  it('completes results before it polls open requests of the same key, however many of these are due', async () => {
    const database = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: database.url })
    const now = deps.clock().getTime()
    await database.sql`insert into mediadock.requests (request_id, key_name, key_source, next_poll_at)
      select gen_random_uuid(), 'live', 'tracked', ${new Date(now - 900_000)} from generate_series(1, 500)`
    const landed = await incomplete(database, { at: new Date(now - 1000) })
    const [first, ...others] = await claimDue(deps, { limit: 16, resting: none })
    expect(first?.request_id).toBe(landed)
    expect(others).toHaveLength(15)
  })

  it('polls a request that a caller waits for every few seconds, although a later poll is asked for', async () => {
    const database = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: database.url })
    const at = (seconds: number) => new Date(deps.clock().getTime() + seconds * 1000)
    const [row] = await database.sql`
      insert into mediadock.requests (request_id, key_name, tracked_at, polled_at, doubt_poll_at)
      values (gen_random_uuid(), 'live', ${at(-60)}, ${at(-5)}, ${at(55)}) returning request_id`
    const polled: string[] = []
    deps.fetchResult = async ({ requestId, keyName }) => {
      polled.push(requestId)
      return {
        answer: { kind: 'running', status: { status: 'IN_PROGRESS', progress: 1, queue_position: null } },
        keyName,
      }
    }
    const poller = testPoller({ ...deps, awaited: () => [row?.['request_id']] })
    await poller.runOnce()
    await poller.idle()
    expect(polled).toEqual([row?.['request_id']])
  })

  it('keeps a request marked as awaited while a caller waits for it', async () => {
    const { database, receiver, stop } = await withReceiver({ server })
    onTestFinished(stop)
    const id = '00000000-0000-4000-8000-000000000001'
    await database.sql`insert into mediadock.requests (request_id, key_name) values (${id}, 'live')`
    const given = new AbortController()
    const waits = [
      fetch(`${receiver.internalUrl}api/results/${id}?wait=30`, { signal: given.signal }),
      fetch(`${receiver.internalUrl}api/results/${id}?wait=1`),
    ] as const
    await eventually(() => receiver.deps.awaited.ids().length > 0)
    expect(receiver.deps.awaited.ids()).toEqual([id])
    await waits[1]
    expect(receiver.deps.awaited.ids()).toEqual([id])
    given.abort()
    await waits[0].catch(() => {})
    await eventually(() => receiver.deps.awaited.ids().length === 0)
  })

  it('polls keys round-robin, including requests without a key, and skips resting keys', async () => {
    const database = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: database.url, keys: () => keysOf(liveKey, sandboxKey) })
    const at = (seconds: number) => new Date(deps.clock().getTime() - seconds * 1000)
    await incomplete(database, { at: at(5000), count: 3000 })
    const other = await incomplete(database, { at: at(1), key: 'sandbox' })
    const unnamed = await incomplete(database, { at: at(1), key: null })
    const first = (await claimDue(deps, { limit: 3, resting: none })).map(({ request_id }) => request_id)
    expect(first).toEqual(expect.arrayContaining([other, unnamed]))
    expect(await claimDue(deps, { limit: 16, resting: new Set(['live', 'sandbox', '']) })).toEqual([])
    const own = await claimDue(deps, { limit: 16, resting: new Set(['sandbox', '']) })
    expect(new Set(own.map(({ key_name }) => key_name))).toEqual(new Set(['live']))
  })

  it('skips a key without calls for a while', async () => {
    const database = await withTestDatabase(server)
    let calls = 0
    const deps = createTestWorker({
      databaseUrl: database.url,
      fetchResult: async ({ keyName }) => {
        calls += 1
        return {
          answer: { kind: 'no_call', reason: 'quota' },
          keyName,
        }
      },
    })
    await incomplete(database, { at: deps.clock(), count: 100 })
    const poller = testPoller(deps)
    const round = async () => {
      await poller.runOnce()
      await poller.idle()
      return calls
    }
    const first = await round()
    expect(first).toBe(16)
    expect(await round()).toBe(first)
    deps.setNow(new Date(deps.clock().getTime() + 2999))
    expect(await round()).toBe(first)
    deps.setNow(new Date(deps.clock().getTime() + 1))
    expect(await round()).toBe(2 * first)
    // Given back, each at its place.
    expect(
      await database.sql`select from mediadock.requests where next_poll_at <= ${deps.clock()} and polls = 0`,
    ).toHaveLength(100)
  })
})
