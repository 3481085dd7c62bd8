import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createPool, type Pool } from '../../../src/platform/postgres/postgres.ts'
import { listArrivals } from '../../../src/receiver/queries/arrivals.ts'
import { listDeliveries } from '../../../src/receiver/queries/deliveries.ts'
import { ensurePartitions } from '../../../src/receiver/upkeep/arrival-partitions.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'

let database: TestDatabase
let pool: Pool

beforeAll(async () => {
  database = await createTestDatabase()
  pool = createPool({ url: database.url, max: 2 })
  await ensurePartitions(pool.db, new Date())
})
beforeEach(async () => {
  await database.sql`truncate mediadock.deliveries, mediadock.arrivals, mediadock.key_uses`
})
afterAll(async () => {
  await pool.close()
  await database.drop()
})

async function store(keyName: string, ageSeconds: number, outcome = 'accepted'): Promise<string> {
  const id = randomUUID()
  const requestId = randomUUID()
  await database.sql`insert into mediadock.deliveries (id, webhook_id, request_id, key_name, signed_at, received_at, headers, body)
    values (${id}, ${id}, ${requestId}, ${keyName}, now(), now() - make_interval(secs => ${ageSeconds}), '{}', '')`
  await database.sql`insert into mediadock.arrivals (arrived_at, outcome, reason, status, key_name, delivery_id, request_id, ack_ms)
    values (now() - make_interval(secs => ${ageSeconds}), ${outcome}, ${outcome === 'accepted' ? null : 'postgres_failed'}, 200, ${keyName}, ${id}, ${requestId}, 1)`
  return id
}

const used = (keyName: string, firstAge: number, lastAge: number) =>
  database.sql`insert into mediadock.key_uses values (${keyName}, now() - make_interval(secs => ${firstAge}), now() - make_interval(secs => ${lastAge}), 2)`

async function found(keyName: string): Promise<[deliveries: string[], arrivals: (string | null)[]]> {
  const [deliveries, arrivals] = [
    await listDeliveries(pool.db, { key_name: keyName }),
    await listArrivals(pool.db, { key_name: keyName }),
  ]
  return [deliveries.data.map(({ id }) => id), arrivals.data.map(({ delivery_id }) => delivery_id)]
}

const hour = 3600
const day = 24 * hour

describe('a filter by key', () => {
  it('finds the first and the last match of any age', async () => {
    const ids = [await store('old', 3 * day), await store('old', 20 * day)]
    await used('old', 20 * day, 3 * day)
    expect(await found('old')).toEqual([ids, ids])
  })

  it('finds a recent arrival although the match of its key is not recorded yet', async () => {
    const ids = [await store('new', 0), await store('new', 300)]
    expect(await found('new')).toEqual([ids, ids])
    await used('back', 20 * day, 30)
    const back = [await store('back', 0)]
    expect(await found('back')).toEqual([back, back])
  })

  it('pages through keys with few and with many rows, including unstored arrivals', async () => {
    await database.sql`
      with d as (
        insert into mediadock.deliveries (id, webhook_id, key_name, signed_at, received_at, headers, body)
        select gen_random_uuid(), i::text, case when i % 100 = 0 then 'few' else 'many' end, now(), now() - i * interval '1 second', '{}', '' from generate_series(1, 700) i
        returning id, key_name, received_at)
      insert into mediadock.arrivals (arrived_at, outcome, status, key_name, delivery_id, ack_ms)
      select received_at + again * interval '500 milliseconds', case again when 0 then 'accepted' else 'duplicate' end, 200, key_name, id, 1 from d, generate_series(0, 1) as again`
    for (const key of ['few', 'many']) {
      await used(key, 700, 1)
      await database.sql`insert into mediadock.arrivals (arrived_at, outcome, reason, status, key_name, ack_ms) values (now() - interval '350.25 seconds', 'unavailable', 'postgres_failed', 503, ${key}, 1)`
      const expected =
        await database.sql`select id::int from mediadock.arrivals where key_name = ${key} order by arrived_at desc, id desc`
      const ids: number[] = []
      let cursor: string | undefined
      do {
        const page = await listArrivals(pool.db, { key_name: key, limit: 100, cursor })
        ids.push(...page.data.map(({ id }) => id))
        cursor = page.next_cursor ?? undefined
      } while (cursor !== undefined)
      expect(ids).toEqual(expected.map(({ id }) => id))
      const first = await listDeliveries(pool.db, { key_name: key, limit: 5 })
      const rest = await listDeliveries(pool.db, { key_name: key, limit: 200, cursor: first.next_cursor ?? undefined })
      const stored =
        await database.sql`select id from mediadock.deliveries where key_name = ${key} order by received_at desc limit 205`
      expect([...first.data, ...rest.data].map(({ id }) => id)).toEqual(stored.map(({ id }) => id))
    }
  })

  it('searches only times in which the key can have matched', async () => {
    // Nothing like this can be there: it shows that the time is bounded, which is what makes the answer quick.
    await store('never', 2 * day)
    expect(await found('never')).toEqual([[], []])
    await used('old', 20 * day, 10 * day)
    await store('old', 2 * day)
    await store('old', 25 * day)
    expect(await found('old')).toEqual([[], []])
  })
})

describe('a filter by request', () => {
  it('finds arrivals through deliveries, and unstored arrivals', async () => {
    const id = await store('live', 5)
    const [row] = await database.sql`select request_id from mediadock.deliveries where id = ${id}`
    const requestId: string = row?.['request_id']
    const refused = randomUUID()
    await database.sql`insert into mediadock.arrivals (arrived_at, outcome, reason, status, delivery_id, ack_ms) values (now() - interval '1 hour', 'refused', 'no_matching_secret', 401, ${id}, 1)`
    await database.sql`insert into mediadock.arrivals (arrived_at, outcome, reason, status, request_id, webhook_id, ack_ms) values (now(), 'unavailable', 'postgres_failed', 503, ${requestId}, ${refused}, 1)`
    await store('live', 1)
    const page = await listArrivals(pool.db, { request_id: requestId })
    expect(page.data.map(({ outcome }) => outcome)).toEqual(['unavailable', 'accepted', 'refused'])
    expect((await listDeliveries(pool.db, { outcome: 'refused' })).data.map((one) => one.id)).toEqual([id])
    expect((await listDeliveries(pool.db, { outcome: 'unavailable' })).data).toEqual([])
  })
})
