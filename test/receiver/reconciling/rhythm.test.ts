import { randomUUID } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import type { ResultAnswer } from '../../../src/receiver/fetching/fetcher.ts'
import { landOne } from '../../../src/receiver/landing/land-reports.ts'
import { reportToLand } from '../../../src/receiver/landing/report-to-land.ts'
import { claimDue } from '../../../src/receiver/reconciling/poll-claims.ts'
import { poll } from '../../../src/receiver/reconciling/polling.ts'
import * as reconciler from '../../../src/receiver/reconciling/reconciler.ts'
import { parse } from '../../../src/receiver/sources/generation-queue/to-report.ts'
import { testServers, withTestDatabase, usualServers } from '../../support/database.ts'
import { imageResult } from '../../support/provider-stand.ts'
import { reportOf } from '../../support/report.ts'
import { createTestWorker } from '../../support/worker.ts'

const running = (_id: string): ResultAnswer => ({
  kind: 'running',
  status: { status: 'IN_PROGRESS', queue_position: null, progress: 1 },
})
const outputs = {
  pictures: { images: [{ url: 'https://media.test/a.png' }] },
  video: { video: { url: 'https://media.test/a.mp4' } },
  audio: { audio: { url: 'https://media.test/a.mp3' } },
}

/** A receiver whose provider always answers the same, on a clock that the test moves. */
async function scene(server: (typeof testServers)[number], answer: (id: string) => ResultAnswer) {
  const { url, sql } = await withTestDatabase(server)
  const deps = createTestWorker({
    databaseUrl: url,
    fetchResult: async ({ requestId, onGranted }) => {
      onGranted?.()
      return { answer: answer(requestId), keyName: 'live' }
    },
  })
  const pauseOf = async (requestId: string) => {
    const [row] = await sql`select next_poll_at from mediadock.requests where request_id = ${requestId}`
    return (row?.['next_poll_at'].getTime() - deps.clock().getTime()) / 1000
  }
  const later = (seconds: number) => deps.setNow(new Date(deps.clock().getTime() + seconds * 1000))
  return { sql, deps, pauseOf, later }
}

describe.each(usualServers)('the schedule of polls (%s)', (server) => {
  it.each([
    [20, 5, 5],
    [150, 24, 30],
    [600, 96, 120],
    [7200, 240, 300],
  ])('a request that has been running for %i s: after a fifth of that, from 5 s to 5 min', async (age, least, most) => {
    const { sql, deps, pauseOf } = await scene(server, running)
    const requestId = randomUUID()
    const [trackedAt, due] = [new Date(deps.clock().getTime() - age * 1000), deps.clock()]
    // However often it was polled before.
    await sql`insert into mediadock.requests (request_id, key_name, tracked_at, next_poll_at, polls) values (${requestId}, 'live', ${trackedAt}, ${due}, 19)`
    expect(await reconciler.runOnce(deps)).toMatchObject({ running: 1 })
    const pause = await pauseOf(requestId)
    expect(pause).toBeGreaterThanOrEqual(least)
    expect(pause).toBeLessThanOrEqual(most)
  })

  it.each(Object.entries(outputs))(
    'an incomplete result (%s): after 2 s, and twice as long each time, up to 5 min',
    async (_what, output) => {
      const { deps, pauseOf, later } = await scene(server, () => ({ kind: 'unreachable', detail: 'answered 500' }))
      const requestId = randomUUID()
      const notification = { request_id: requestId, status: 'OK' as const, payload: { model: 'm', output, cost: 1 } }
      const parsed = parse(notification)
      if (parsed.kind !== 'report') throw new Error('the sample is no notification')
      const origin = { via: 'delivery', source_name: null, reporting_key: 'live', environment: 'live' } as const
      const landing = reportToLand(parsed.report, origin, undefined)
      expect(landing.media_complete).toBe(false)
      await landOne(deps.db, landing, {
        now: deps.time(),
        keys: deps.keys,
      })
      // The first poll is due with the landing.
      expect(await pauseOf(requestId)).toBe(0)
      expect(await reconciler.runOnce(deps)).toMatchObject({ failed: 1 })
      for (const whole of [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]) {
        const pause = await pauseOf(requestId)
        expect(pause).toBeGreaterThanOrEqual(whole / 2)
        expect(pause).toBeLessThanOrEqual(whole)
        later(pause - 0.01)
        expect(await reconciler.runOnce(deps)).toMatchObject({ scanned: 0 })
        later(0.01)
        expect(await reconciler.runOnce(deps)).toMatchObject({ failed: 1 })
      }
    },
  )

  it.each<[string, ResultAnswer]>([
    ['running', running('')],
    ['invalid', { kind: 'invalid', detail: 'answered 302' }],
  ])('an incomplete result: earlier polls of the running request do not count (%s)', async (_what, answer) => {
    const { sql, deps, pauseOf } = await scene(server, () => answer)
    const requestId = randomUUID()
    const [trackedAt, landedAt] = [7_200_000, 3000].map((ms) => new Date(deps.clock().getTime() - ms))
    await sql`insert into mediadock.requests (request_id, key_name, status, source, tracked_at, landed_at, next_poll_at, polls)
      values (${requestId}, 'live', 'FAILED', 'webhook', ${trackedAt!}, ${landedAt!}, ${deps.clock()}, 25)`
    expect(await reconciler.runOnce(deps)).toMatchObject({ scanned: 1, landed: 0 })
    expect(await pauseOf(requestId)).toBeLessThanOrEqual(6)
  })

  it('a request unknown to every key: later each time, up to an hour', async () => {
    const { sql, deps, pauseOf } = await scene(server, () => ({ kind: 'not_found' }))
    const [fresh, old] = [randomUUID(), randomUUID()]
    await sql`insert into mediadock.requests (request_id, key_name, next_poll_at, polls) values (${fresh}, 'live', ${deps.clock()}, 0), (${old}, 'live', ${deps.clock()}, 30)`
    expect(await reconciler.runOnce(deps)).toMatchObject({ notFound: 2 })
    expect(await pauseOf(fresh)).toBeLessThanOrEqual(30)
    expect(await pauseOf(old)).toBeGreaterThanOrEqual(1800)
    expect(await pauseOf(old)).toBeLessThanOrEqual(3600)
  })

  it('requests without a key that may call: put off, so that they keep no others from their polls', async () => {
    const lost = randomUUID()
    const { sql, deps } = await scene(server, (id) =>
      id === lost ? { kind: 'result', report: reportOf(imageResult(id)) } : { kind: 'no_key' },
    )
    const hoursAgo = (hours: number) => new Date(deps.clock().getTime() - hours * 3_600_000)
    await sql`insert into mediadock.requests (request_id, key_name, source_name, external_id, tracked_at, next_poll_at)
      select gen_random_uuid(), 'gone', 'gone', n::text, ${hoursAgo(5)}, ${hoursAgo(4)} from generate_series(1, 40) n`
    await sql`insert into mediadock.requests (request_id, tracked_at) values (${lost}, ${hoursAgo(3)})`
    expect(await reconciler.runOnce(deps)).toMatchObject({ scanned: 41, landed: 1, postponed: 40 })
    const [latest] = await sql`select max(next_poll_at) as at from mediadock.requests`
    expect(latest?.['at'].getTime() - deps.clock().getTime()).toBeLessThanOrEqual(300_000)
  })

  it('a result that is known already: not polled again, and not counted as landed', async () => {
    const { sql, deps } = await scene(server, (id) => ({ kind: 'result', report: reportOf(imageResult(id)) }))
    const requestId = randomUUID()
    await sql`insert into mediadock.requests (request_id, key_name, next_poll_at) values (${requestId}, 'live', ${deps.clock()})`
    expect(await reconciler.runOnce(deps)).toMatchObject({ scanned: 1, landed: 1 })
    expect(await reconciler.reconcileOne(deps, requestId)).toBe('known')
    expect(await sql`select next_poll_at, poll_outcome from mediadock.requests`).toEqual([
      { next_poll_at: null, poll_outcome: 'result' },
    ])
  })

  it('a request that landed completely during its poll is not polled again because of the late answer', async () => {
    const { sql, deps } = await scene(server, running)
    const requestId = randomUUID()
    await sql`insert into mediadock.requests (request_id, key_name, next_poll_at) values (${requestId}, 'live', ${deps.clock()})`
    const { fetchResult } = deps
    deps.fetchResult = async (lookup) => {
      await sql`update mediadock.requests set status = 'FAILED', source = 'webhook', landed_at = now(), confirmed_at = now(), next_poll_at = null where request_id = ${requestId}`
      return fetchResult(lookup)
    }
    await reconciler.runOnce(deps)
    expect(await sql`select next_poll_at from mediadock.requests`).toEqual([{ next_poll_at: null }])
  })

  it('a request that landed incomplete during an extra poll without a call: due at once', async () => {
    const { sql, deps, pauseOf } = await scene(server, () => ({ kind: 'no_call', reason: 'quota' }))
    const [unlanded, landed] = [randomUUID(), randomUUID()]
    await sql`insert into mediadock.requests (request_id, key_name, doubt_poll_at)
      values (${unlanded}, 'live', ${deps.clock()}), (${landed}, 'live', ${deps.clock()})`
    const { fetchResult } = deps
    deps.fetchResult = async (lookup) => {
      if (lookup.requestId === landed)
        await sql`update mediadock.requests set status = 'FAILED', source = 'webhook', landed_at = ${deps.clock()}, next_poll_at = ${deps.clock()} where request_id = ${landed}`
      return fetchResult(lookup)
    }
    for (const one of await claimDue(deps, { limit: 2, resting: new Set() })) await poll(deps, one)
    expect(await pauseOf(landed)).toBe(0)
    expect(await sql`select next_poll_at from mediadock.requests where request_id = ${unlanded}`).toEqual([
      { next_poll_at: null },
    ])
  })

  it('a result that has just landed is not lost, however old its request is', async () => {
    const { sql, deps, pauseOf } = await scene(server, () => ({ kind: 'not_found' }))
    const [fresh, old] = [randomUUID(), randomUUID()]
    const daysAgo = (days: number) => new Date(deps.clock().getTime() - days * 86_400_000)
    await sql`insert into mediadock.requests (request_id, key_name, status, source, tracked_at, landed_at, next_poll_at)
      values (${fresh}, 'live', 'FAILED', 'webhook', ${daysAgo(5)}, ${deps.clock()}, ${deps.clock()}),
        (${old}, 'live', 'FAILED', 'webhook', ${daysAgo(5)}, ${daysAgo(2)}, ${deps.clock()})`
    expect(await reconciler.runOnce(deps)).toMatchObject({ notFound: 2 })
    expect(await pauseOf(fresh)).toBeLessThanOrEqual(3600)
    expect(await sql`select poll_outcome from mediadock.requests where request_id = ${old}`).toEqual([
      { poll_outcome: 'lost' },
    ])
  })
})
