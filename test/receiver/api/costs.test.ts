import { beforeAll, expect, it } from 'vitest'
import { type TestDatabase, preferredServer } from '../../support/database.ts'
import type { TestReceiver } from '../../support/receiver.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { call } from './calls.ts'

let database: TestDatabase
let receiver: TestReceiver

beforeAll(async () => {
  const its = await withReceiver({ server: preferredServer })
  ;({ database, receiver } = its)
  const { sql } = database
  const landed = async (
    model: string,
    user: string | null,
    cost: string,
    trackedAt = '2026-03-01T10:00:00Z',
    sandbox: boolean | null = false,
  ) =>
    sql`insert into mediadock.requests (request_id, status, model, key_name, sandbox, metadata, cost, media_complete, tracked_at, landed_at, source)
      values (gen_random_uuid(), 'CANCELED', ${model}, 'live', ${sandbox}, ${user === null ? null : sql.json({ user })}, ${cost}, true, ${trackedAt}, ${trackedAt}, 'webhook')`
  for (let n = 0; n < 10; n += 1) await landed('vela', 'ann', '0.1')
  await landed('vela', 'bob', '2.5', '2026-03-02T23:59:59Z')
  await landed('aurora', null, '4', '2026-03-02T00:00:00Z', null)
  await landed('aurora', 'ann', '99', undefined, true)
  await sql`insert into mediadock.generations (idempotency_key, state, model, input, key_name, request_id, cost, created_at, next_attempt_at, attempts)
    values ('9f3c1d0a-0000-4000-8000-000000000001', 'submitted', 'lyra', '{}', 'live', '9f3c1d0a-0000-4000-8000-000000000002', 7, now(), now(), 1)`
  await sql`insert into mediadock.requests (request_id, model, key_name, sandbox, metadata, idempotency_key, tracked_at)
    values ('9f3c1d0a-0000-4000-8000-000000000002', 'lyra', 'live', false, '{"user":"ann"}', '9f3c1d0a-0000-4000-8000-000000000001', '2026-03-02T01:00:00Z')`
  return its.stop
})

const costs = async (query: string) => (await call(receiver, `GET /api/costs?${query}`)).json
const sums = (requests: number, settled: number, reserved = 0) => ({
  requests,
  credits_settled: settled,
  credits_reserved: reserved,
})

it('sums settled and reserved credits by model, the most expensive first, without the sandbox', async () => {
  expect(await costs('by=model')).toEqual({
    by: 'model',
    data: [
      { group: 'lyra', ...sums(1, 0, 7) },
      { group: 'aurora', ...sums(1, 4) },
      { group: 'vela', ...sums(11, 3.5) },
    ],
    others: sums(0, 0),
    total: sums(13, 7.5, 7),
  })
})

it('sums by key, by day and by a member of the metadata, to the last decimal', async () => {
  expect((await costs('by=key_name')).data).toEqual([{ group: 'live', ...sums(13, 7.5, 7) }])
  expect((await costs('by=day')).data).toEqual([
    { group: '2026-03-02', ...sums(3, 6.5, 7) },
    { group: '2026-03-01', ...sums(10, 1) },
  ])
  expect((await costs('by=metadata.user')).data).toEqual([
    { group: 'ann', ...sums(11, 1, 7) },
    { group: null, ...sums(1, 4) },
    { group: 'bob', ...sums(1, 2.5) },
  ])
})

it('sums requests tracked at or after since and before until', async () => {
  const { total } = await costs('by=model&since=2026-03-01T00:00:00Z&until=2026-03-02T00:00:00Z')
  expect(total).toEqual(sums(10, 1))
})

it('shows 500 groups and sums the rest', async () => {
  const its = await withReceiver()
  try {
    await its.database
      .sql`insert into mediadock.requests (request_id, status, model, cost, media_complete, landed_at, source)
      select gen_random_uuid(), 'CANCELED', 'm' || n, n, true, now(), 'webhook' from generate_series(1, 503) n`
    const { json } = await call(its.receiver, 'GET /api/costs?by=model')
    expect(json.data).toHaveLength(500)
    expect({ others: json.others, total: json.total.credits_settled }).toEqual({ others: sums(3, 6), total: 126_756 })
  } finally {
    await its.stop()
  }
})

it.each(['', 'by=', 'by=metadata', 'by=metadata.a%27b', 'by=model&until=x', 'by=model&x=1'])(
  'refuses ?%s',
  async (query) => {
    expect(await call(receiver, `GET /api/costs?${query}`)).toMatchObject({
      status: 400,
      json: { error: { code: 'invalid_filter' } },
    })
  },
)
