import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import type { TestDatabase } from '../../support/database.ts'
import { startTestReceiver, type TestReceiver } from '../../support/receiver.ts'
import { failed } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { call, deliverAndSettle } from './calls.ts'

let database: TestDatabase
let receiver: TestReceiver
/** More than two of the queries that an export is made of. */
const many = 2500

beforeAll(async () => {
  const its = await withReceiver()
  ;({ database, receiver } = its)
  await database.sql`
    insert into mediadock.deliveries (id, webhook_id, key_name, signed_at, received_at, headers, body)
    select gen_random_uuid(), 'wh_' || n, 'live', at, at, '{}', ''
    from generate_series(1, ${many}) n, lateral (select timestamptz '2026-01-01' + (n / 3) * interval '1 second' as at) t`
  await database.sql`
    insert into mediadock.arrivals (arrived_at, outcome, reason, status, ack_ms, webhook_id)
    select timestamptz '2026-01-01' + n * interval '1 second', 'refused', 'no_matching_secret', 401, 1, 'wh_' || n from generate_series(1, ${many}) n`
  return its.stop
})

const lines = (text: string) => text.split(/\r?\n/).filter(Boolean)

describe.each(['', '/api'])('an export at %s/…', (base) => {
  it("contains every delivery once, newest first, as JSON lines like the list's items", async () => {
    const { status, headers, text } = await call(
      receiver,
      `GET ${base}/deliveries.ndjson?state=processed&until=2026-02-01T00:00:00Z`,
    )
    expect(status).toBe(200)
    expect(headers.get('content-type')).toBe('application/x-ndjson; charset=utf-8')
    expect(headers.get('content-disposition')).toMatch(/^attachment; filename="deliveries-\d{8}T\d{6}\.ndjson"$/)
    const items = lines(text).map((line) => JSON.parse(line))
    expect(new Set(items.map(({ id }) => id)).size).toBe(many)
    expect(items).toHaveLength(many)
    expect(items.map(({ received_at }) => received_at)).toEqual(
      items.map(({ received_at }) => received_at).sort((a, b) => (a < b ? 1 : -1)),
    )
    expect(items[0]).toEqual(
      (await call(receiver, 'GET /api/deliveries?limit=1&until=2026-02-01T00:00:00Z')).json.data[0],
    )
  })

  it('contains every arrival as CSV', async () => {
    const { headers, text } = await call(
      receiver,
      `GET ${base}/arrivals.csv?outcome=refused&until=2026-02-01T00:00:00Z`,
    )
    expect(headers.get('content-type')).toBe('text/csv; charset=utf-8')
    const [head, ...rows] = lines(text)
    expect(head).toBe(
      'id,arrived_at,outcome,reason,status,webhook_id,delivery_id,request_id,key_name,remote,bytes,skew_seconds,ack_ms,folded,source_name,parked_reason',
    )
    expect(rows).toHaveLength(many)
    expect(rows[0]).toMatch(
      new RegExp(
        `^\\d+,2026-01-01T00:41:40.000Z,refused,no_matching_secret,401,wh_${many},,,,,,,1,0,generation-queue,$`,
      ),
    )
  })

  it('refuses a wrong filter before it begins', async () => {
    expect(
      await call(receiver, `GET ${base}/deliveries.csv?state=lost`, { headers: { accept: 'application/json' } }),
    ).toMatchObject({
      status: 400,
      json: { error: { code: 'invalid_filter' } },
    })
  })
})

describe('a cell of CSV', () => {
  it.each([
    ['=HYPERLINK("http://x","y")', `"'=HYPERLINK(""http://x"",""y"")"`],
    ['+1', "'+1"],
    ['-1', "'-1"],
    ['@SUM(A1)', "'@SUM(A1)"],
    ['a,b', '"a,b"'],
  ])('keeps %s from being executed or split', async (webhookId, cell) => {
    const id = await deliverAndSettle({ receiver, database }, failed(), { webhookId })
    const { text } = await call(receiver, `GET /api/deliveries.csv?ids=${id}`)
    expect(lines(text)[1]).toContain(`${id},${cell},`)
    expect(lines(text)).toHaveLength(2)
  })

  it('leaves numbers unchanged', async () => {
    const [row] = await database.sql`
      insert into mediadock.deliveries (id, webhook_id, key_name, signed_at, received_at, headers, body)
      values (gen_random_uuid(), ${randomUUID()}, 'live', '2026-01-01 00:00:07Z', '2026-01-01 00:00:00Z', '{}', '') returning id`
    expect((await call(receiver, `GET /api/deliveries.csv?ids=${row?.['id']}`)).text).toContain(',-7,')
  })
})

it('aborts an export that cannot finish, so that a part does not look complete', async () => {
  const other = await startTestReceiver({ databaseUrl: database.url })
  await database.sql`
    insert into mediadock.arrivals (arrived_at, outcome, reason, status, ack_ms, webhook_id)
    select timestamptz '2025-01-01' + n * interval '1 millisecond', 'refused', 'no_matching_secret', 401, 1, repeat('w', 250) from generate_series(1, 60000) n`
  const response = await fetch(`${other.internalUrl}api/arrivals.ndjson`)
  const reader = response.body!.getReader()
  await reader.read()
  const stopped = other.stop()
  const drain = async () => {
    while (!(await reader.read()).done);
  }
  await expect(drain()).rejects.toThrow()
  await stopped
})

describe('GET /api/deliveries?q=', () => {
  it('finds by a complete or abbreviated delivery, request or webhook id, and answers 400 for too few characters', async () => {
    const sample = failed()
    const id = await deliverAndSettle({ receiver, database }, sample, { webhookId: 'wh_search_me' })
    const found = async (q: string) =>
      (await call(receiver, `GET /api/deliveries?q=${encodeURIComponent(q)}`)).json.data.map(
        (delivery: { id: string }) => delivery.id,
      )
    for (const q of [
      id,
      id.toUpperCase(),
      id.slice(0, 9),
      id.replaceAll('-', ''),
      sample.requestId,
      sample.requestId.slice(0, 11),
      'wh_search_me',
      'wh_search',
    ]) {
      expect([q, await found(q)]).toEqual([q, [id]])
    }
    expect(await found('search_me')).toEqual([])
    expect(await found('WH_SEARCH')).toEqual([])
    expect(await found('wh_search%')).toEqual([])
    expect(await call(receiver, 'GET /api/deliveries?q=wh_')).toMatchObject({
      status: 400,
      json: { error: { code: 'invalid_filter', message: expect.stringContaining('q: must have at least 4') } },
    })
    const arrivals = (await call(receiver, `GET /api/arrivals?q=${sample.requestId.slice(0, 11)}`)).json.data
    expect(arrivals).toMatchObject([{ delivery_id: id }])
  })

  it('covers the whole range of a prefix', async () => {
    const ids = [
      '5eacc001-0000-0000-0000-000000000000',
      '5eacc001-ffff-ffff-ffff-ffffffffffff',
      '5eacc002-0000-0000-0000-000000000000',
    ]
    for (const id of ids) {
      await database.sql`insert into mediadock.deliveries (id, webhook_id, key_name, signed_at, received_at, headers, body) values (${id}, 'wh_range', 'live', now(), now(), '{}', '')`
    }
    const { json } = await call(receiver, 'GET /api/deliveries?q=5eacc001')
    expect(json.data.map(({ id }: { id: string }) => id).sort()).toEqual(ids.slice(0, 2))
  })

  it('combines with the other filters, and with a range of time', async () => {
    const id = await deliverAndSettle({ receiver, database }, failed(), { webhookId: 'wh_both_of_it' })
    const found = async (query: string) =>
      (await call(receiver, `GET /api/deliveries?${query}`)).json.data.map((delivery: { id: string }) => delivery.id)
    expect(await found('q=wh_both&state=processed&since=2026-02-01T00:00:00Z')).toEqual([id])
    expect(await found('q=wh_both&state=parked')).toEqual([])
    expect(await found('q=wh_both&until=2026-02-01T00:00:00Z')).toEqual([])
  })
})

it.each(['ids=x', `ids=${Array.from({ length: 201 }, () => randomUUID()).join(',')}`])(
  'refuses malformed ids, or too many',
  async (query) => {
    expect(await call(receiver, `GET /api/deliveries?${query}`)).toMatchObject({
      status: 400,
      json: { error: { code: 'invalid_filter', message: expect.stringMatching(/^ids/) } },
    })
  },
)
