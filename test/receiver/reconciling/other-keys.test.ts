import { describe, expect, it } from 'vitest'
import { takeCall } from '../../../src/receiver/fetching/call-budget.ts'
import type { ResultAnswer } from '../../../src/receiver/fetching/fetcher.ts'
import * as reconciler from '../../../src/receiver/reconciling/reconciler.ts'
import { long } from '../../chaos/length.ts'
import { withTestDatabase, usualServers } from '../../support/database.ts'
import { keysOf, liveKey } from '../../support/receiver.ts'
import { failed } from '../../support/webhooks.ts'
import { workOnce } from '../../support/work-once.ts'
import { createTestWorker, store, testPoller } from '../../support/worker.ts'

/* The powers of a key's holder, or of a tracking service, over the requests of another key. */

const otherTeam = { name: 'other team', api_key: 'service_live_cccccccccccccccc', signing_secret: 'whsec_other_team' }
const keys = keysOf(liveKey, otherTeam)
const running = (_id: string): ResultAnswer => ({
  kind: 'running',
  status: { status: 'IN_PROGRESS', queue_position: null, progress: 1 },
})

describe.each(usualServers)('requests of another key (%s)', (server) => {
  it('an ERROR signed by another live key than the tracked one causes a poll at once', async () => {
    const { url, sql } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url, keys: () => keys })
    const [forged, own] = [failed(), failed()]
    await sql`insert into mediadock.requests (request_id, key_name) values (${forged.requestId}, 'other team'), (${own.requestId}, 'live')`
    await store(deps.db, [forged.body, own.body])
    deps.setNow(new Date(Date.now() + 1000))
    expect(await workOnce(deps)).toMatchObject({ landed: 2 })
    const due = await sql`select request_id from mediadock.requests where next_poll_at <= ${deps.clock()}`
    expect(due).toEqual([{ request_id: forged.requestId }])
  })

  it('thousands of tracked requests with invented key names delay no request of a configured key', async () => {
    const { url, sql } = await withTestDatabase(server)
    const own = failed().requestId
    await sql`insert into mediadock.requests (request_id, key_name, tracked_at) select gen_random_uuid(), 'invented ' || n, now() - interval '2 hours' from generate_series(1, 3000) n`
    await sql`insert into mediadock.requests (request_id, key_name, tracked_at) values (${own}, 'live', now() - interval '1 hour')`
    const polled: (string | undefined)[] = []
    const deps = createTestWorker({
      databaseUrl: url,
      keys: () => keys,
      fetchResult: async ({ keyName, onGranted }) => {
        polled.push(keyName)
        onGranted?.()
        return keyName === 'live'
          ? { answer: { kind: 'not_found' }, keyName }
          : { answer: { kind: 'no_call', reason: 'quota' }, keyName }
      },
    })
    expect(await reconciler.runOnce(deps)).toMatchObject({ notFound: 1, scanned: 17 })
    expect(polled).toContain('live')
  })

  it('1,000 invented requests of a key do not delay polls of its running requests', async () => {
    const { url, sql } = await withTestDatabase(server)
    const known = new Set(Array.from({ length: 20 }, () => failed().requestId))
    const lateSeconds: number[] = []
    let callsForUnknown = 0
    const deps = createTestWorker({
      databaseUrl: url,
      keys: () => keys,
      fetchRatePerMinute: 100,
      fetchResult: async ({ requestId, purpose, onGranted }) => {
        const call = { keyName: 'live', limitPerMinute: 100, purpose, now: deps.time() }
        const grant = await takeCall(deps.db, call)
        if (!grant.ok) return { answer: { kind: 'no_call', reason: grant.reason }, keyName: 'live' }
        onGranted?.()
        if (!known.has(requestId) && purpose === 'trial') callsForUnknown += 1
        return { answer: known.has(requestId) ? running(requestId) : { kind: 'not_found' }, keyName: 'live' }
      },
    })
    await sql`
      insert into mediadock.requests (request_id, key_name, tracked_at, next_poll_at, polls, poll_outcome)
      select gen_random_uuid(), 'live', now() - interval '2 hours',
        case when n > 900 then now() - interval '1 hour' end, case when n > 900 then 3 else 0 end,
        case when n > 900 then 'not_found' end
      from generate_series(1, 1000) n`
    await sql`
      insert into mediadock.requests (request_id, key_name, tracked_at, next_poll_at, polls, poll_outcome)
      select id, 'live', now() - interval '200 seconds', now() + n * interval '2 seconds', 3, 'running'
      from unnest(${[...known]}::uuid[]) with ordinality as k (id, n)`
    const poller = testPoller(deps)
    for (let second = 0; second < (long ? 240 : 120); second += 1) {
      deps.setNow(new Date(deps.clock().getTime() + 1000))
      if (second % 30 === 0) await reconciler.runOnce(deps)
      while ((await poller.runOnce()).more);
      await poller.idle()
      const late = await sql<{ seconds: number }[]>`
        select extract(epoch from ${deps.clock()}::timestamptz - next_poll_at)::float8 as seconds
        from mediadock.requests where request_id = any(${[...known]}::uuid[]) and next_poll_at <= ${deps.clock()}`
      lateSeconds.push(...late.map(({ seconds }) => seconds))
    }
    // A call comes back a minute after it was spent.
    expect(Math.max(0, ...lateSeconds)).toBeLessThan(60)
    expect(callsForUnknown).toBeLessThanOrEqual(5 * 10)
  })
})

it('metadata that lists cannot show is refused at tracking', async () => {
  const { sql } = await withTestDatabase()
  const track = (bytes: number) =>
    sql`insert into mediadock.requests (request_id, metadata) values (gen_random_uuid(), jsonb_build_object('text', repeat('x', ${bytes}::int)))`
  await track(1_000_000)
  await expect(track(9_000_000)).rejects.toThrow('the metadata of a row of mediadock.requests is too large')
})
