import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { type TestDatabase, testServers } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import type { TestReceiver } from '../../support/receiver.ts'
import { deliver, failed } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { call } from '../api/calls.ts'
import { startSubscriber } from '../subscriptions/support/subscriber.ts'

describe.each(testServers)('requests with 1 MiB of metadata each (%s)', (server) => {
  let database: TestDatabase
  let receiver: TestReceiver
  let before = 0
  const order = randomUUID()
  const ids: string[] = []

  beforeAll(async () => {
    const its = await withReceiver({ server })
    ;({ database, receiver } = its)
    // Few kilobytes as stored, a third of a million values to look at.
    const rows = await database.sql`
      insert into mediadock.requests (request_id, status, landed_at, source, metadata)
      select gen_random_uuid(), 'FAILED', now(), 'webhook', metadata
      from (select jsonb_build_object('order', ${order}::text, 'n', jsonb_agg(n % 10)) as metadata from generate_series(1, 340000) n) m,
        generate_series(1, 40)
      returning request_id`
    ids.push(...rows.map(({ request_id }) => String(request_id)))
    before = Number((await database.sql`select max(position) as head from mediadock.feed`)[0]?.['head'] ?? 0)
    await database.sql`insert into mediadock.feed_entries (position, changed_at, request_id, status, media_complete)
      select ${before}::bigint + (extract(epoch from now()) * 1000000)::bigint + n, now(), id, 2, true
      from unnest(${ids}::uuid[]) with ordinality as r (id, n)`
    return its.stop
  }, 120_000)

  it('do not delay neighbours of their deliveries', async () => {
    const { sql } = database
    const samples = Array.from({ length: 151 }, () => failed())
    const requestIds = samples.map(({ requestId }) => requestId)
    await sql`insert into mediadock.requests (request_id, metadata)
      select id, metadata from unnest(${requestIds.slice(0, 150)}::uuid[]) as t (id),
        (select metadata from mediadock.requests where request_id = ${ids[0] ?? ''}) m`
    await Promise.all(samples.map(({ body }) => deliver(receiver.webhookUrl, body)))
    const acknowledged = performance.now()
    await eventually(async () => {
      const [row] = await sql`select landed_at from mediadock.results where request_id = ${requestIds.at(-1) ?? ''}`
      return row?.['landed_at'] instanceof Date
    }, 30_000)
    // With a CHECK that every update evaluates: 5 s and more.
    expect(performance.now() - acknowledged).toBeLessThan(2000)
  }, 60_000)

  it('are listed, searched and read one by one', async () => {
    const listed = new Set<string>()
    for (let path = '/api/requests?limit=100'; path !== '';) {
      const { status, json } = await call(receiver, `GET ${path}`)
      expect(status).toBe(200)
      for (const { id } of json.data) listed.add(id)
      path = json.next_cursor === null || listed.size > 10 ? '' : `/api/requests?limit=100&cursor=${json.next_cursor}`
    }
    expect(listed.size).toBeGreaterThan(10)
    for (const path of [`/api/search?q=${order}`, `/api/requests/${ids[0]}`, `/api/results/${ids[0]}`, '/requests'])
      expect(await call(receiver, `GET ${path}`), path).toMatchObject({ status: 200 })
  }, 60_000)

  it('are in the feed, and are posted to subscriptions', async () => {
    const { status, json } = await call(receiver, `GET /api/feed?after=${before}&limit=200`)
    expect(status).toBe(200)
    expect(json.data[0]).toMatchObject({ request_id: ids[0], result: { metadata: { order } } })
    expect(json.next_after).toBeGreaterThan(before)

    const subscriber = await startSubscriber()
    await database.sql`insert into mediadock.subscriptions (name, url, secret, position)
      values ('heavy', ${subscriber.url}, 'whsec_of_the_subscription', ${before})`
    onTestFinished(async () => void (await database.sql`delete from mediadock.subscriptions`))
    await eventually(() => subscriber.posted.length > 5, 30_000)
  }, 60_000)
})
