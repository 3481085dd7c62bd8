import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { sandboxKey, type TestReceiver } from '../../support/receiver.ts'
import { deliver, failed, okAudio } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { call, deliverAndSettle, follow } from './calls.ts'

let database: TestDatabase
let receiver: TestReceiver
const ids: Record<string, string> = {}
const webhookIds = { failed: randomUUID(), audio: randomUUID(), parked: randomUUID(), pending: randomUUID() }
const requests = { failed: randomUUID(), audio: randomUUID(), pending: randomUUID() }
const refusedWebhook = randomUUID()
const unreadWebhook = randomUUID()
const hour = 3_600_000

/** One delivery of each kind, arrivals of each kind, requests of each kind, an hour apart where time matters. */
beforeAll(async () => {
  const its = await withReceiver({ settings: { maxBodyBytes: 64 * 1024 } })
  ;({ database, receiver } = its)
  const both = { receiver, database }
  ids['failed'] = await deliverAndSettle(both, failed(requests.failed), { webhookId: webhookIds.failed })
  await deliver(receiver.webhookUrl, failed(requests.failed).body, { webhookId: webhookIds.failed })
  ids['audio'] = await deliverAndSettle(both, okAudio(requests.audio), {
    webhookId: webhookIds.audio,
    secret: sandboxKey.signing_secret,
  })
  ids['parked'] = await deliverAndSettle(
    both,
    { requestId: '', body: Buffer.from('no json') },
    { webhookId: webhookIds.parked },
  )
  await deliver(receiver.webhookUrl, failed().body, { webhookId: refusedWebhook, secret: 'whsec_unknown' })
  await deliver(receiver.webhookUrl, Buffer.alloc(65 * 1024, ' '), { webhookId: unreadWebhook })
  // Accepted and held back, as while every worker is busy; an hour older than all others.
  const at = new Date(Date.now() - hour).toISOString()
  ids['pending'] = randomUUID()
  await database.sql`insert into mediadock.deliveries (id, webhook_id, request_id, status, key_name, signed_at, received_at, headers, body)
    values (${ids['pending']}, ${webhookIds.pending}, ${requests.pending}, 'OK', 'live', ${at}, ${at}, '{}', 'x')`
  await database.sql`insert into mediadock.inbox (delivery_id, due_at, failures) values (${ids['pending']}, now() + interval '5 minutes', 2)`
  await database.sql`insert into mediadock.requests (request_id, model, key_name, tracked_at) values (${requests.pending}, 'vela', 'live', ${at})`
  await eventually(async () => (await database.sql`select from mediadock.arrivals`).length === 6)
  return its.stop
})

async function listed(path: string): Promise<string[]> {
  const { status, json, text } = await call(receiver, `GET ${path}`)
  expect(status, text).toBe(200)
  return json.data.map(({ id }: { id: string }) => id)
}
const named = (...names: string[]) => names.map((name) => ids[name])
const soon = () => encodeURIComponent(new Date(Date.now() - hour / 2).toISOString())

describe('GET /api/deliveries', () => {
  it('returns the newest first, with all members', async () => {
    const { json } = await call(receiver, 'GET /api/deliveries')
    expect(json.data.map(({ id }: { id: string }) => id)).toEqual(named('parked', 'audio', 'failed', 'pending'))
    expect(json.next_cursor).toBeNull()
    expect(json.data[2]).toEqual({
      id: ids['failed'],
      webhook_id: webhookIds.failed,
      request_id: requests.failed,
      status: 'ERROR',
      state: 'processed',
      outcome: 'landed',
      reason: null,
      flags: [],
      model: null,
      key_name: 'live',
      source_name: 'generation-queue',
      signed_at: expect.stringMatching(/Z$/),
      received_at: expect.stringMatching(/Z$/),
      skew_seconds: expect.any(Number),
      bytes: failed(requests.failed).body.length,
      arrivals: 2,
      ack_ms: expect.any(Number),
    })
    expect(json.data[0]).toMatchObject({
      state: 'parked',
      outcome: 'parked',
      reason: 'not_json',
      request_id: null,
      status: null,
      arrivals: 1,
    })
    expect(json.data[3]).toMatchObject({
      state: 'pending',
      outcome: 'accepted',
      model: 'vela',
      arrivals: 0,
      ack_ms: null,
    })
  })

  it.each<[string, () => string, string[]]>([
    ['state=pending', () => 'state=pending', ['pending']],
    ['state=processed', () => 'state=processed', ['audio', 'failed']],
    ['state=parked', () => 'state=parked', ['parked']],
    ['outcome=landed', () => 'outcome=landed', ['audio', 'failed']],
    ['outcome=no_effect', () => 'outcome=no_effect', []],
    ['outcome=parked', () => 'outcome=parked', ['parked']],
    ['outcome=accepted', () => 'outcome=accepted', ['audio', 'failed']],
    ['outcome=duplicate', () => 'outcome=duplicate', ['failed']],
    ['outcome=refused', () => 'outcome=refused', []],
    ['reason', () => 'reason=not_json', ['parked']],
    ['request_id', () => `request_id=${requests.audio.toUpperCase()}`, ['audio']],
    ['webhook_id', () => `webhook_id=${webhookIds.failed}`, ['failed']],
    ['webhook_id of nothing', () => `webhook_id=${webhookIds.failed}x`, []],
    ['key_name', () => 'key_name=sandbox', ['audio']],
    ['since', () => `since=${soon()}`, ['parked', 'audio', 'failed']],
    ['until', () => `until=${soon()}`, ['pending']],
    ['several at once', () => `key_name=live&state=processed&since=${soon()}`, ['failed']],
  ])('filters by %s', async (_name, query, names) => {
    expect(await listed(`/api/deliveries?${query()}`)).toEqual(named(...names))
  })

  it('finds a delivery that was refused before it was accepted by outcome=refused', async () => {
    const webhookId = randomUUID()
    const sample = failed()
    await deliver(receiver.webhookUrl, sample.body, { webhookId, secret: 'whsec_not_yet' })
    const id = await deliverAndSettle({ receiver, database }, sample, { webhookId })
    expect(await listed('/api/deliveries?outcome=refused')).toEqual([id])
    expect(await listed(`/api/deliveries?outcome=refused&until=${soon()}`)).toEqual([])
    // Either may be logged last.
    const arrivals = () => database.sql`select from mediadock.arrivals where webhook_id = ${webhookId}`
    await eventually(async () => (await arrivals()).length === 2)
    await database.sql`delete from mediadock.arrivals where webhook_id = ${webhookId}`
    await database.sql`delete from mediadock.deliveries where webhook_id = ${webhookId}`
    await database.sql`delete from mediadock.requests where request_id = ${sample.requestId}`
  })
})

describe('GET /api/arrivals', () => {
  const webhooksOf = async (query: string) => {
    const { status, json, text } = await call(receiver, `GET /api/arrivals?${query}`)
    expect(status, text).toBe(200)
    return json.data.map(({ webhook_id }: { webhook_id: string }) => webhook_id)
  }

  it('returns the newest first, refused ones with their claimed id', async () => {
    expect(await webhooksOf('')).toEqual([
      unreadWebhook,
      refusedWebhook,
      webhookIds.parked,
      webhookIds.audio,
      webhookIds.failed,
      webhookIds.failed,
    ])
    const { json } = await call(receiver, `GET /api/arrivals?webhook_id=${refusedWebhook}`)
    expect(json.data).toEqual([
      {
        id: expect.any(Number),
        arrived_at: expect.stringMatching(/Z$/),
        outcome: 'refused',
        reason: 'no_matching_secret',
        status: 401,
        webhook_id: refusedWebhook,
        delivery_id: expect.any(String),
        request_id: null,
        key_name: null,
        source_name: 'generation-queue',
        remote: expect.any(String),
        bytes: expect.any(Number),
        skew_seconds: expect.any(Number),
        ack_ms: expect.any(Number),
        folded: 0,
        parked_reason: null,
      },
    ])
  })

  it.each<[string, () => string, () => string[]]>([
    ['outcome', () => 'outcome=refused', () => [unreadWebhook, refusedWebhook]],
    ['outcome=duplicate', () => 'outcome=duplicate', () => [webhookIds.failed]],
    ['reason', () => 'reason=no_matching_secret', () => [refusedWebhook]],
    ['request_id', () => `request_id=${requests.failed}`, () => [webhookIds.failed, webhookIds.failed]],
    ['webhook_id', () => `webhook_id=${webhookIds.failed}`, () => [webhookIds.failed, webhookIds.failed]],
    [
      'webhook_id of what was refused before its body was read',
      () => `webhook_id=${unreadWebhook}`,
      () => [unreadWebhook],
    ],
    ['key_name', () => 'key_name=sandbox', () => [webhookIds.audio]],
    ['state=parked', () => 'state=parked', () => [webhookIds.parked]],
    ['state=processed', () => 'state=processed', () => [webhookIds.audio, webhookIds.failed, webhookIds.failed]],
    ['state=pending', () => 'state=pending', () => []],
    ['until', () => `until=${soon()}`, () => []],
    ['since', () => `since=${soon()}&outcome=parked`, () => [webhookIds.parked]],
  ])('filters by %s', async (_name, query, expected) => {
    expect(await webhooksOf(query())).toEqual(expected())
  })

  it('finds authentic but unstored arrivals by request', async () => {
    const requestId = randomUUID()
    await database.sql`insert into mediadock.arrivals (arrived_at, outcome, reason, status, webhook_id, delivery_id, request_id, ack_ms)
      values (now() - interval '2 hours', 'unavailable', 'postgres_failed', 503, 'lost', ${randomUUID()}, ${requestId}, 12)`
    expect(await webhooksOf(`request_id=${requestId}`)).toEqual(['lost'])
    await database.sql`delete from mediadock.arrivals where webhook_id = 'lost'`
  })
})

describe('GET /api/requests', () => {
  it('returns the newest first, with all members', async () => {
    const { json } = await call(receiver, 'GET /api/requests')
    expect(json.data.map(({ id }: { id: string }) => id)).toEqual([requests.audio, requests.failed, requests.pending])
    expect(json.data[0]).toMatchObject({
      request_id: requests.audio,
      status: 'COMPLETED',
      overdue: false,
      model: 'lyra-audio',
      key_name: 'sandbox',
      sandbox: true,
      cost: 2,
      media_items: 1,
      media_gone: 0,
      media_complete: false,
      source: 'webhook',
      landed_at: expect.stringMatching(/Z$/),
      webhook_at: expect.stringMatching(/Z$/),
      contradiction: false,
      first_media: { kind: 'audio', url: `https://media.test/${requests.audio}.mp3` },
    })
    expect(json.data[1]).toMatchObject({ request_id: requests.failed, first_media: null })
    expect(json.data[2]).toMatchObject({ status: 'IN_QUEUE', overdue: true, landed_at: null, cost: null })
  })

  it.each<[string, () => string, () => string[]]>([
    ['status', () => 'status=FAILED', () => [requests.failed]],
    ['status=IN_QUEUE', () => 'status=IN_QUEUE', () => [requests.pending]],
    ['model', () => 'model=lyra-audio', () => [requests.audio]],
    ['key_name', () => 'key_name=live', () => [requests.failed, requests.pending]],
    ['overdue=true', () => 'overdue=true', () => [requests.pending]],
    ['overdue=false', () => 'overdue=false', () => [requests.audio, requests.failed]],
    ['since', () => `since=${soon()}`, () => [requests.audio, requests.failed]],
    ['until', () => `until=${soon()}`, () => [requests.pending]],
    ['ids', () => `ids=${requests.audio},${requests.pending.toUpperCase()}`, () => [requests.audio, requests.pending]],
  ])('filters by %s', async (_name, query, expected) => {
    expect(await listed(`/api/requests?${query()}`)).toEqual(expected())
  })

  it('filters requests with a contradicting delivery', async () => {
    await database.sql`update mediadock.deliveries set flags = '{contradiction}' where request_id = ${requests.failed}`
    expect(await listed('/api/requests?contradiction=true')).toEqual([requests.failed])
    expect(await listed('/api/requests?contradiction=false')).toEqual([requests.audio, requests.pending])
    await database.sql`update mediadock.deliveries set flags = '{foreign_host}' where request_id = ${requests.failed}`
    expect(await listed('/api/requests?contradiction=true')).toEqual([])
    await database.sql`update mediadock.deliveries set flags = '{}' where request_id = ${requests.failed}`
  })

  it('shows an abandoned request without a next poll', async () => {
    const id = randomUUID()
    await database.sql`insert into mediadock.requests (request_id, tracked_at, next_poll_at, poll_outcome) values (${id}, now() - interval '3 days', 'infinity', 'lost')`
    const { json } = await call(receiver, 'GET /api/requests?overdue=true')
    expect(json.data.at(-1)).toMatchObject({ id, next_poll_at: null, poll_outcome: 'lost' })
    await database.sql`delete from mediadock.requests where request_id = ${id}`
  })
})

describe('a filter that cannot be applied', () => {
  it.each([
    ['/api/deliveries?state=done', 'state'],
    ['/api/deliveries?state=', 'state'],
    ['/api/deliveries?state=parked&state=pending', 'state'],
    ['/api/deliveries?outcome=lost', 'outcome'],
    ['/api/deliveries?request_id=1', 'request_id'],
    ['/api/deliveries?webhook_id=%00', 'webhook_id'],
    ['/api/deliveries?since=yesterday', 'since'],
    ['/api/deliveries?until=2026-02-30T00:00:00Z', 'until'],
    ['/api/deliveries?since=2026-02-03T00:00:00', 'since'],
    ['/api/deliveries?limit=0', 'limit'],
    ['/api/deliveries?limit=201', 'limit'],
    ['/api/deliveries?limit=1e1', 'limit'],
    ['/api/deliveries?colour=red', 'colour'],
    ['/api/deliveries?cursor=abc', 'cursor'],
    [`/api/deliveries?cursor=${Buffer.from('1.5').toString('base64url')}`, 'cursor'],
    ['/api/deliveries?min_ack_ms=fast', 'min_ack_ms'],
    ['/api/arrivals?min_skew_seconds=0', 'min_skew_seconds'],
    ['/api/arrivals?outcome=landed', 'outcome'],
    ['/api/arrivals?cursor=%F0', 'cursor'],
    [`/api/arrivals?cursor=${Buffer.from(`1.${randomUUID()}`).toString('base64url')}`, 'cursor'],
    ['/api/arrivals?status=200', 'status'],
    ['/api/requests?status=DONE', 'status'],
    ['/api/requests?overdue=yes', 'overdue'],
    ['/api/requests?state=parked', 'state'],
    ['/api/quarantine?state=parked', 'state'],
  ])('is named: %s', async (path, parameter) => {
    const { status, json } = await call(receiver, `GET ${path}`)
    expect({ status, error: json.error }).toEqual({
      status: 400,
      error: {
        type: 'invalid_request_error',
        code: 'invalid_filter',
        message: expect.stringMatching(new RegExp(`^${parameter}: `)),
      },
    })
  })
})

describe('measured values', () => {
  it('finds slow acknowledgements, and signatures from clocks that are fast or slow', async () => {
    const arrived = (at: string, ackMs: number, skew: number) =>
      database.sql`
      insert into mediadock.arrivals (arrived_at, outcome, status, ack_ms, skew_seconds, delivery_id)
      values (${at}, 'accepted', 200, ${ackMs}, ${skew}, ${ids['pending'] ?? ''}) returning id::int`.then(
        ([row]) => row?.['id'],
      )
    const slow = await arrived('2020-01-01T00:00:01Z', 2500, 0)
    const early = await arrived('2020-01-01T00:00:02Z', 2, -250)
    const late = await arrived('2020-01-01T00:00:03Z', 3000, 250)
    const then = 'until=2020-01-02T00:00:00Z'
    expect(await listed(`/api/arrivals?min_ack_ms=2500&${then}`)).toEqual([late, slow])
    expect(await listed(`/api/arrivals?min_skew_seconds=250&${then}`)).toEqual([late, early])
    expect(await listed(`/api/arrivals?min_skew_seconds=250&min_ack_ms=2500&${then}`)).toEqual([late])
    expect(await listed(`/api/arrivals?min_skew_seconds=251&${then}`)).toEqual([])
    expect(await listed('/api/deliveries?min_skew_seconds=250')).toEqual(named('pending'))
    expect(await listed('/api/deliveries?min_arrivals=2')).toEqual(named('failed', 'pending'))
    expect(await listed('/api/deliveries?min_arrivals=3')).toEqual(named('pending'))
    expect(await listed('/api/deliveries?min_arrivals=4')).toEqual([])
    expect(await listed('/api/deliveries?min_ack_ms=2500&min_skew_seconds=251')).toEqual([])
    await database.sql`delete from mediadock.arrivals where arrived_at < '2020-01-02'`
  })
})

describe('a cursor', () => {
  const add = (count: number, ageSeconds: number) =>
    database.sql`insert into mediadock.arrivals (arrived_at, outcome, status, ack_ms, key_name)
      select now() - make_interval(secs => ${ageSeconds}), 'accepted', 200, 1, 'paged' from generate_series(1, ${count})`

  it('returns every row once, in order, while new rows arrive and many have the same time', async () => {
    await add(5, 100)
    await add(7, 90)
    const before = await follow(receiver, '/api/arrivals?key_name=paged&limit=200')
    const seen: unknown[] = []
    let cursor = ''
    for (;;) {
      const { json } = await call(receiver, `GET /api/arrivals?key_name=paged&limit=2${cursor}`)
      seen.push(...json.data.map(({ id }: { id: number }) => id))
      if (json.next_cursor === null) break
      cursor = `&cursor=${json.next_cursor}`
      await add(2, 1)
    }
    expect(before).toHaveLength(12)
    expect(seen).toEqual(before)
    expect(await follow(receiver, '/api/arrivals?key_name=paged&limit=3')).toHaveLength(22)
  })

  it.each(['/api/deliveries', '/api/requests'])('walks through %s one by one', async (path) => {
    const all = await follow(receiver, `${path}?limit=200`)
    expect(all.length).toBeGreaterThan(2)
    expect(await follow(receiver, `${path}?limit=1`)).toEqual(all)
  })

  it('keeps microseconds, by which two rows may differ', async () => {
    const at = '2026-01-01 00:00:00'
    const model = 'microseconds'
    const rows = Array.from({ length: 5 }, (_, n) => ({
      request_id: randomUUID(),
      model,
      tracked_at: `${at}.00012${n}+00`,
    }))
    for (const row of rows)
      await database.sql`insert into mediadock.requests (request_id, model, tracked_at) values (${row.request_id}, ${model}, ${row.tracked_at}::text::timestamptz)`
    expect(await follow(receiver, `/api/requests?model=${model}&limit=2`)).toEqual(
      rows.toReversed().map(({ request_id }) => request_id),
    )
    await database.sql`delete from mediadock.requests where model = ${model}`
  })
})

describe('a query', () => {
  it('that takes longer than 5 s is canceled, in Postgres too, with an error', async () => {
    const locked = Promise.withResolvers<void>()
    const release = Promise.withResolvers<void>()
    const held = database.sql.begin(async (tx) => {
      await tx`lock table mediadock.deliveries in access exclusive mode`
      locked.resolve()
      await release.promise
    })
    await locked.promise
    try {
      const { status, json } = await call(receiver, 'GET /api/deliveries')
      expect({ status, json }).toEqual({
        status: 503,
        json: {
          error: {
            type: 'api_error',
            code: 'query_timeout',
            message: 'the query took longer than 5 s and was stopped: narrow it, for example by since and until',
          },
        },
      })
      const running =
        await database.sql`select query from pg_stat_activity where datname = current_database() and query like '%with chosen%' and state = 'active' and pid <> pg_backend_pid()`
      expect([...running]).toEqual([])
    } finally {
      release.resolve()
      await held
    }
    expect((await call(receiver, 'GET /api/deliveries')).status).toBe(200)
  })
})
