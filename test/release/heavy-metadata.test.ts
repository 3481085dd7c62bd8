import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { readResults } from '../../src/client/read-results.ts'
import { call } from '../receiver/api/calls.ts'
import { startSubscriber } from '../receiver/subscriptions/support/subscriber.ts'
import { type TestDatabase, usualServers } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import type { TestReceiver } from '../support/receiver.ts'
import { deliver, failed } from '../support/webhooks.ts'
import { withReceiver } from '../support/with-receiver.ts'

/** More than two pages read in a second each: each of these rows takes 50 to 300 ms of Postgres. */
const rows = 80
/** The whole array is searched for each of these numbers, and the last is in none. */
const slowFilter = JSON.stringify({ n: [10, 10, 10, 10, 10, 11] })

describe.each(usualServers)('requests with 1 MiB of metadata each (%s)', (server) => {
  let database: TestDatabase
  let receiver: TestReceiver
  let before = 0
  const order = randomUUID()
  const ids: string[] = []

  /** Copies keep the compressed value, without a second check of its limits. */
  async function copies(of: string, count: number, { isLanded = true } = {}): Promise<string[]> {
    const copied = await database.sql.begin(async (tx) => {
      await tx`alter table mediadock.requests disable trigger requests_metadata`
      const made = await tx`insert into mediadock.requests (request_id, status, landed_at, source, metadata)
        select gen_random_uuid(), ${isLanded ? tx`'FAILED', now(), 'webhook'` : tx`'IN_QUEUE', null, null`}, metadata
        from mediadock.requests, generate_series(1, ${count}) where request_id = ${of} returning request_id`
      await tx`alter table mediadock.requests enable trigger requests_metadata`
      return made
    })
    return copied.map(({ request_id }) => String(request_id))
  }

  beforeAll(async () => {
    const its = await withReceiver({ server })
    ;({ database, receiver } = its)
    const first = randomUUID()
    // Some kilobytes as stored, a third of a million values to look at.
    await database.sql`insert into mediadock.requests (request_id, status, landed_at, source, metadata)
      select ${first}, 'FAILED', now(), 'webhook',
        jsonb_build_object('order', ${order}::text, 'n', jsonb_agg(case when n = 340000 then 10 else n % 10 end))
      from generate_series(1, 340000) n`
    ids.push(first, ...(await copies(first, rows - 1)))
    before = Number((await database.sql`select max(position) as head from mediadock.feed`)[0]?.['head'] ?? 0)
    await database.sql`insert into mediadock.feed_entries (position, changed_at, request_id, status, media_complete)
      select ${before}::bigint + (extract(epoch from now()) * 1000000)::bigint + n, now(), id, 2, true
      from unnest(${ids}::uuid[]) with ordinality as r (id, n)`
    return its.stop
  })

  it('do not delay neighbours of their deliveries', async () => {
    const { sql } = database
    const tracked = await copies(ids[0] ?? '', 150, { isLanded: false })
    const neighbour = failed()
    const samples = [...tracked.map((id) => failed(id)), neighbour]
    await Promise.all(samples.map(({ body }) => deliver(receiver.webhookUrl, body)))
    const acknowledged = performance.now()
    await eventually(async () => {
      const [row] = await sql`select landed_at from mediadock.results where request_id = ${neighbour.requestId}`
      return row?.['landed_at'] instanceof Date
    })
    // With a CHECK that every update evaluates: 5 s and more.
    expect(performance.now() - acknowledged).toBeLessThan(2000)
  })

  it('are listed, and read one by one', async () => {
    const listed = new Set<string>()
    for (let path = '/api/requests?limit=100'; path !== '';) {
      const { status, json } = await call(receiver, `GET ${path}`)
      expect(status).toBe(200)
      for (const { id } of json.data) listed.add(id)
      path = json.next_cursor === null || listed.size > 10 ? '' : `/api/requests?limit=100&cursor=${json.next_cursor}`
    }
    expect(listed.size).toBeGreaterThan(10)
    for (const path of [`/api/requests/${ids[0]}`, `/api/results/${ids[0]}`, '/requests'])
      expect(await call(receiver, `GET ${path}`), path).toMatchObject({ status: 200 })
  })

  it('are passed by a filter of a list, page by page', async () => {
    const first = await call(receiver, `GET /api/requests?metadata=${slowFilter}`)
    expect(first).toMatchObject({ status: 200, json: { data: [], next_cursor: expect.any(String) } })
    const second = await call(receiver, `GET /api/requests?metadata=${slowFilter}&cursor=${first.json.next_cursor}`)
    expect(second).toMatchObject({ status: 200, json: { data: [] } })
    expect(second.json.next_cursor).not.toBe(first.json.next_cursor)
  })

  it('are passed by a subscription with a filter', async () => {
    const { sql } = database
    const subscriber = await startSubscriber()
    await sql`insert into mediadock.subscriptions (name, url, secret, position, filter)
      values ('filtered', ${subscriber.url}, 'whsec_of_the_subscription', ${before}, jsonb_build_object('metadata', ${slowFilter}::text::jsonb))`
    onTestFinished(async () => void (await sql`delete from mediadock.subscriptions`))
    await eventually(async () => {
      const [row] =
        await sql`select position > ${before} as passed from mediadock.subscriptions where name = 'filtered'`
      return row?.['passed'] === true
    })
  })

  it('are read by the client over SQL', async () => {
    const read: unknown[] = []
    const failures: unknown[] = []
    const signal = AbortSignal.timeout(30_000)
    const onRetry = (error: unknown) => failures.push(error)
    for await (const change of readResults({ from: { sql: database.sql }, after: before, signal, onRetry }))
      if (read.push(change) === 10) break
    expect({ failures, read }).toMatchObject({ failures: [], read: ids.slice(0, 10).map((id) => ({ request_id: id })) })
  })

  it('are in the feed, and are posted to subscriptions', async () => {
    const { status, json } = await call(receiver, `GET /api/feed?after=${before}&limit=200`)
    expect(status).toBe(200)
    expect(json.data[0]).toMatchObject({ request_id: ids[0], result: { metadata: { order } } })
    expect(json.next_after).toBeGreaterThan(before)

    const subscriber = await startSubscriber()
    await database.sql`insert into mediadock.subscriptions (name, url, secret, position)
      values ('heavy', ${subscriber.url}, 'whsec_of_the_subscription', ${before})`
    onTestFinished(async () => void (await database.sql`delete from mediadock.subscriptions`))
    await eventually(() => subscriber.posted.length > 5)
  })

  it('are listed where they cannot be read', async () => {
    const { sql } = database
    const unreadable = randomUUID()
    await sql`insert into mediadock.requests (request_id, metadata)
      select ${unreadable}, jsonb_agg(null::text) || '[1e400]' from generate_series(1, 170000)`
    const copied = await copies(unreadable, 60)
    const { status, json } = await call(receiver, 'GET /api/requests?limit=100')
    expect(status).toBe(200)
    expect(copied).toContain(json.data[0]?.id)
    expect(json.data[0]).toMatchObject({ metadata: { error: { code: 'unreadable' } } })
  })
})
