import { expect, it, describe } from 'vitest'
import type { ResultLookup } from '../../../src/receiver/fetching/fetcher.ts'
import { storeDeliveries } from '../../../src/receiver/intake/store.ts'
import { claim } from '../../../src/receiver/landing/inbox.ts'
import { withTestDatabase, usualServers } from '../../support/database.ts'
import { okImage } from '../../support/webhooks.ts'
import { workOnce } from '../../support/work-once.ts'
import { createTestWorker, newDelivery } from '../../support/worker.ts'

const minuteMs = 60_000

describe.each(usualServers)('on %s: what has to be fetched', (server) => {
  it('is taken from each key in turn: 2,000 of one key keep no picture of another waiting', async () => {
    const { url, sql } = await withTestDatabase(server)
    const polled: string[] = []
    const fetch = async ({ requestId, keyName }: ResultLookup) => {
      polled.push(requestId)
      return { answer: { kind: 'unreachable' as const, detail: 'nobody is there' }, keyName }
    }
    const deps = createTestWorker({ databaseUrl: url, fetch })
    const now = deps.clock()
    const flood = Array.from({ length: 2000 }, () => newDelivery(okImage().body, new Date(now.getTime() - minuteMs)))
    for (let at = 0; at < flood.length; at += 250) await storeDeliveries(deps.db, flood.slice(at, at + 250))
    const other = okImage()
    await storeDeliveries(deps.db, [{ ...newDelivery(other.body, now), keyName: 'sandbox' }])
    await workOnce(deps, 'fetch')
    expect(polled.indexOf(other.requestId)).toBeGreaterThanOrEqual(0)
    expect(polled.indexOf(other.requestId)).toBeLessThan(16)
    const [left] = await sql<{ n: number }[]>`select count(*)::int as n from mediadock.inbox`
    expect(left?.n).toBe(2001 - 500)
  })

  it('is bounded in bytes in the same order, so that large bodies of one key do not push another out of a round', async () => {
    const { url } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    const now = deps.clock()
    const large = Array.from({ length: 16 }, () =>
      newDelivery(Buffer.concat([okImage().body, Buffer.alloc(1_000_000, ' ')]), new Date(now.getTime() - minuteMs)),
    )
    for (const one of large) await storeDeliveries(deps.db, [one])
    const other = { ...newDelivery(okImage().body, now), keyName: 'sandbox' }
    await storeDeliveries(deps.db, [other])
    const claimed = await claim(deps.db, { lane: 'fetch', limit: 16, maxBytes: 2_500_000, now })
    expect(claimed.map(({ keyName }) => keyName).toSorted()).toEqual(['live', 'live', 'live', 'sandbox'])
  })

  it('is claimed without reading all that waits, however much of one key it is', { timeout: 60_000 }, async () => {
    const { url, sql } = await withTestDatabase(server)
    await sql`insert into mediadock.inbox (delivery_id, lane, due_at, key_name) select gen_random_uuid(), 'fetch', now() - interval '1 hour' + n * interval '1 ms', 'live' from generate_series(1, 100000) n`
    await sql`insert into mediadock.inbox (delivery_id, lane, due_at, key_name) values (gen_random_uuid(), 'fetch', now(), 'sandbox')`
    await sql`analyze mediadock.inbox`
    const deps = createTestWorker({ databaseUrl: url, max: 1 })
    const read = async () => {
      const [row] = await sql<
        { n: number }[]
      >`select (seq_tup_read + idx_tup_fetch)::int as n from pg_stat_user_tables where relname = 'inbox'`
      return row?.n ?? 0
    }
    await sql`select pg_stat_force_next_flush()`
    const before = await read()
    await claim(deps.db, { lane: 'fetch', limit: 16, maxBytes: 1_000_000, now: new Date() })
    await deps.db.execute('select pg_stat_force_next_flush()')
    const rowsRead = (await read()) - before
    expect(rowsRead).toBeGreaterThan(0)
    expect(rowsRead).toBeLessThan(500)
  })
})
