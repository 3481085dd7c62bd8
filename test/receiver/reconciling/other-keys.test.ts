import { describe, expect, it } from 'vitest'
import * as reconciler from '../../../src/receiver/reconciling/reconciler.ts'
import { withTestDatabase, usualServers } from '../../support/database.ts'
import { keysOf, liveKey } from '../../support/receiver.ts'
import { failed } from '../../support/webhooks.ts'
import { workOnce } from '../../support/work-once.ts'
import { createTestWorker, store } from '../../support/worker.ts'

/* What the holder of one key, or whoever may track, can do to the requests of another. */

const otherTeam = { name: 'other team', api_key: 'service_live_cccccccccccccccc', signing_secret: 'whsec_other_team' }
const keys = keysOf(liveKey, otherTeam)

describe.each(usualServers)('requests of another key (%s)', (server) => {
  it('an ERROR signed by another live key than the tracked one is polled at once', async () => {
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

  it('thousands of tracked requests under invented key names hold up no request of a key of ours', async () => {
    const { url, sql } = await withTestDatabase(server)
    const own = failed().requestId
    await sql`insert into mediadock.requests (request_id, key_name, tracked_at) select gen_random_uuid(), 'invented ' || n, now() - interval '2 hours' from generate_series(1, 3000) n`
    await sql`insert into mediadock.requests (request_id, key_name, tracked_at) values (${own}, 'live', now() - interval '1 hour')`
    const polled: (string | undefined)[] = []
    const deps = createTestWorker({
      databaseUrl: url,
      keys: () => keys,
      fetchResult: async ({ keyName, onDecided }) => {
        polled.push(keyName)
        onDecided?.()
        return keyName === 'live'
          ? { answer: { kind: 'not_found' }, keyName }
          : { answer: { kind: 'postponed', reason: 'quota' }, keyName }
      },
    })
    expect(await reconciler.runOnce(deps)).toMatchObject({ notFound: 1, scanned: 17 })
    expect(polled).toContain('live')
  })
})

it('metadata that nobody could list is refused where it is tracked', async () => {
  const { sql } = await withTestDatabase()
  const track = (bytes: number) =>
    sql`insert into mediadock.requests (request_id, metadata) values (gen_random_uuid(), jsonb_build_object('text', repeat('x', ${bytes}::int)))`
  await track(1_000_000)
  await expect(track(9_000_000)).rejects.toThrow(/requests_metadata_size/)
})
