import { randomUUID } from 'node:crypto'
import { beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { withTestDatabase, type TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { imageResult, json as answerJson, type ProviderStand } from '../../support/provider-stand.ts'
import { keysOf, liveKey, sandboxKey, startTestReceiver, type TestReceiver } from '../../support/receiver.ts'
import { deliver, failed, nowSeconds, okAudio, okImage } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { call, deliverAndSettle } from './calls.ts'

let database: TestDatabase
let stand: ProviderStand
let receiver: TestReceiver

beforeAll(async () => {
  const its = await withReceiver({ stand: true })
  ;({ database, receiver, stand } = its)
  return its.stop
})
beforeEach(() => stand.answer((id, _req, res) => answerJson(res, 200, imageResult(id))))

const resultOf = async (requestId: string) => (await call(receiver, `GET /api/results/${requestId}`)).json

describe('GET /api/deliveries/{id}', () => {
  it('shows headers, raw body, verification, attempts and arrivals', async () => {
    const sample = okImage()
    const webhookId = randomUUID()
    const t = nowSeconds() - 42
    const id = await deliverAndSettle({ receiver, database }, sample, {
      webhookId,
      t,
      headers: { 'x-extra': 'kept', authorization: 'Bearer of-the-sender' },
    })
    const { status, json, text } = await call(receiver, `GET /api/deliveries/${id.toUpperCase()}`)
    expect(status).toBe(200)
    expect(json).toMatchObject({
      id,
      webhook_id: webhookId,
      state: 'processed',
      outcome: 'landed',
      body_text: sample.body.toString(),
      body_base64: sample.body.toString('base64'),
      body_sha256: expect.stringMatching(/^[0-9a-f]{64}$/),
      verification: { key_name: 'live', t, window_seconds: 300 },
      attempts: [{ outcome: 'landed', detail: null }],
      arrival_log: [{ outcome: 'accepted', status: 200, delivery_id: id }],
      failures: 0,
      due_at: null,
    })
    expect(json.verification.skew_seconds).toBeGreaterThanOrEqual(42)
    expect(json.headers).toMatchObject({
      'x-extra': 'kept',
      'content-type': 'application/json',
      authorization: '[redacted]',
    })
    expect(Object.keys(json.headers)).not.toContain('x-service-signature')
    expect(text).not.toContain('of-the-sender')
  })

  it('returns bytes that are not UTF-8 as base64 only, and keeps a byte-order mark', async () => {
    const bytes = Buffer.from([0xff, 0xfe, 0x00])
    const id = await deliverAndSettle(
      { receiver, database },
      { requestId: '', body: bytes },
      { webhookId: randomUUID() },
    )
    expect((await call(receiver, `GET /api/deliveries/${id}`)).json).toMatchObject({
      state: 'parked',
      reason: 'not_utf8',
      body_base64: '//4A',
      body_text: null,
    })
    const marked = await deliverAndSettle(
      { receiver, database },
      { requestId: '', body: Buffer.from('\uFEFF{}') },
      { webhookId: randomUUID() },
    )
    expect((await call(receiver, `GET /api/deliveries/${marked}`)).json).toMatchObject({ body_text: '\uFEFF{}' })
  })

  it.each(['x', randomUUID(), '1'])('answers 404 for %s', async (id) => {
    expect(await call(receiver, `GET /api/deliveries/${id}`)).toMatchObject({
      status: 404,
      json: { error: { code: 'not_found' } },
    })
  })
})

/** A delivery that was parked for its key: tracked with the other environment, and then no longer. */
async function parkedForItsKey({ isMended = true, sample = failed() } = {}): Promise<{
  id: string
  requestId: string
}> {
  await database.sql`insert into mediadock.requests (request_id, key_name) values (${sample.requestId}, 'live')`
  const id = await deliverAndSettle({ receiver, database }, sample, {
    webhookId: randomUUID(),
    secret: sandboxKey.signing_secret,
  })
  expect((await call(receiver, `GET /api/deliveries/${id}`)).json).toMatchObject({
    state: 'parked',
    reason: 'key_mismatch',
  })
  if (isMended)
    await database.sql`update mediadock.requests set key_name = 'sandbox' where request_id = ${sample.requestId}`
  return { id, requestId: sample.requestId }
}

describe('POST /api/deliveries/{id}/replay', () => {
  it.each([
    ['FAILED', failed],
    ['COMPLETED', okAudio],
  ])('shows the changes to %s in a dry run without making them; then makes them', async (status, sampleOf) => {
    const { id, requestId } = await parkedForItsKey({ sample: sampleOf() })
    const dry = await call(receiver, `POST /api/deliveries/${id}/replay`, { body: { dry_run: true } })
    expect(dry).toMatchObject({
      status: 200,
      json: {
        replayed: 1,
        changes: [{ request_id: requestId, outcome: 'landed', request: { after: { status } } }],
      },
    })
    expect(await resultOf(requestId)).toMatchObject({ status: 'IN_QUEUE', landed_at: null })
    const { before, after } = dry.json.changes[0].request

    const real = await call(receiver, `POST /api/deliveries/${id}/replay`)
    expect(real).toMatchObject({
      status: 200,
      json: { replayed: 1, changes: [{ request_id: requestId, outcome: 'landed' }] },
    })
    expect(await resultOf(requestId)).toMatchObject({ status })
    const [row] = await database.sql`
      select to_jsonb(r) - 'metadata' as result from mediadock.results r where request_id = ${requestId}`
    expect(after).toEqual({ ...row?.['result'], landed_at: expect.any(String) })
    expect(Object.keys(after).toSorted()).toEqual(Object.keys(before).toSorted())
    const again = await call(receiver, `POST /api/deliveries/${id}/replay`, { body: {} })
    expect(again).toMatchObject({ status: 200, json: { replayed: 1, changes: [] } })
  })

  it('leaves a delivery that would be parked again for the same reason, and reports it', async () => {
    const { id } = await parkedForItsKey({ isMended: false })
    for (const dryRun of [true, false]) {
      const replayed = await call(receiver, `POST /api/deliveries/${id}/replay`, { body: { dry_run: dryRun } })
      expect(replayed).toMatchObject({ status: 200, json: { replayed: 1, changes: [] } })
    }
    expect((await call(receiver, `GET /api/deliveries/${id}`)).json).toMatchObject({
      state: 'parked',
      reason: 'key_mismatch',
    })
    // Out of the way of those that are replayed by their reason.
    await database.sql`update mediadock.deliveries set parked_reason = null where id = ${id}`
  })

  it('reports no change of a contradiction that is flagged already', async () => {
    const image = okImage()
    await deliverAndSettle({ receiver, database }, image, { webhookId: randomUUID() })
    const webhookId = randomUUID()
    const id = await deliverAndSettle({ receiver, database }, failed(image.requestId), { webhookId })
    expect((await call(receiver, `GET /api/deliveries/${id}`)).json).toMatchObject({ flags: ['contradiction'] })
    for (const dryRun of [true, false]) {
      const replayed = await call(receiver, `POST /api/deliveries/${id}/replay`, { body: { dry_run: dryRun } })
      expect(replayed).toMatchObject({ status: 200, json: { replayed: 1, changes: [] } })
    }
  })

  it('answers 404 for an unknown delivery and 400 for a wrong body', async () => {
    expect(await call(receiver, `POST /api/deliveries/${randomUUID()}/replay`)).toMatchObject({ status: 404 })
    expect(await call(receiver, 'POST /api/deliveries/x/replay')).toMatchObject({ status: 404 })
    for (const body of [{ dry_run: 'yes' }, { dryrun: true }, []]) {
      expect(await call(receiver, `POST /api/deliveries/${randomUUID()}/replay`, { body })).toMatchObject({
        status: 400,
        json: { error: { code: 'invalid_body' } },
      })
    }
  })
})

it("a replay that a trigger refuses reports Postgres's message, alone and among many, and changes nothing", async () => {
  const { requestId, body } = failed()
  await database.sql.unsafe(`
    create function public.refuse_one() returns trigger language plpgsql as $$
      begin if new.request_id = '${requestId}' then raise exception 'this one is not wanted'; end if; return new; end $$;
    create trigger refuse_one before insert or update on mediadock.requests for each row execute function public.refuse_one()`)
  await deliver(receiver.webhookUrl, body)
  const [delivery] = await eventually(async () => {
    const rows = await database.sql<
      { id: string }[]
    >`select id from mediadock.deliveries where request_id = ${requestId}`
    return rows.length === 1 && rows
  })
  const words = expect.stringMatching(/this one is not wanted \(P0001\)/)
  for (const dryRun of [true, false]) {
    const alone = await call(receiver, `POST /api/deliveries/${delivery?.id}/replay`, { body: { dry_run: dryRun } })
    expect(alone).toMatchObject({ status: 409, json: { error: { code: 'landing_refused', message: words } } })
  }
  const many = await call(receiver, 'POST /api/deliveries/replay', { body: { filter: { request_id: requestId } } })
  expect(many.json).toMatchObject({ count: 1, replayed: 0, failed: [{ delivery_id: delivery?.id, message: words }] })
  expect(await database.sql`select from mediadock.requests where request_id = ${requestId}`).toHaveLength(0)
  await database.sql.unsafe('drop trigger refuse_one on mediadock.requests')
  const once = await call(receiver, `POST /api/deliveries/${delivery?.id}/replay`)
  expect(once).toMatchObject({
    status: 200,
    json: { replayed: 1, changes: [{ request_id: requestId, outcome: 'landed' }] },
  })
  // It lands now, by this replay, and waits for no further try.
  await eventually(async () => (await call(receiver, 'GET /api/stats')).json.pending === 0)
})

it('a replay that meets a lock reports it, and succeeds after the lock', async () => {
  const sample = failed()
  const id = await deliverAndSettle({ receiver, database }, sample, { webhookId: randomUUID() })
  for (const dryRun of [true, false]) {
    const body = { dry_run: dryRun }
    const replay = () => call(receiver, `POST /api/deliveries/${id}/replay`, { body })
    const answer = await database.sql.begin(async (transaction) => {
      await transaction`select from mediadock.requests where request_id = ${sample.requestId} for update`
      return replay()
    })
    expect(answer).toMatchObject({ status: 503, json: { error: { code: 'request_locked' } } })
    expect(answer.headers.get('retry-after')).toBe('2')
    expect(await replay()).toMatchObject({ status: 200, json: { replayed: 1 } })
  }
})

it('a replay of a request that changes meanwhile tries again, and records one attempt', async () => {
  const sample = failed()
  const id = await deliverAndSettle({ receiver, database }, sample, { webhookId: randomUUID() })
  let replay: ReturnType<typeof call> | undefined
  await database.sql.begin(async (transaction) => {
    await transaction`update mediadock.requests set metadata = '{}' where request_id = ${sample.requestId}`
    replay = call(receiver, `POST /api/deliveries/${id}/replay`, { body: {} })
    await eventually(async () => {
      const waiting = await database.sql`select from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'`
      return waiting.length > 0
    })
  })
  expect(await replay).toMatchObject({ status: 200, json: { replayed: 1 } })
  const attempts = await database.sql`select outcome from mediadock.attempts where delivery_id = ${id}`
  expect(attempts).toEqual([{ outcome: 'no_effect' }])
})

describe('POST /api/deliveries/replay', () => {
  const replay = (body: unknown) => call(receiver, 'POST /api/deliveries/replay', { body })

  it('answers the count first and replays the filtered deliveries', async () => {
    const some = [await parkedForItsKey(), await parkedForItsKey(), await parkedForItsKey()]
    const filter = { reason: 'key_mismatch', state: 'parked' }
    const dry = await replay({ filter, dry_run: true })
    expect(dry.status).toBe(200)
    expect(dry.text).toMatch(/^\{"count":3,/)
    expect(dry.json).toMatchObject({ count: 3, replayed: 3, failed: [], next_cursor: null })
    expect(new Set(dry.json.changes.map(({ request_id }: { request_id: string }) => request_id))).toEqual(
      new Set(some.map(({ requestId }) => requestId)),
    )
    for (const { requestId } of some) expect(await resultOf(requestId)).toMatchObject({ status: 'IN_QUEUE' })

    const [first] = some
    expect((await replay({ filter: { request_id: first?.requestId } })).json).toMatchObject({ count: 1, replayed: 1 })
    expect(await resultOf(first?.requestId ?? '')).toMatchObject({ status: 'FAILED' })
    expect((await replay({ filter: { reason: 'key_mismatch' } })).json).toMatchObject({
      replayed: expect.any(Number),
      failed: [],
    })
    for (const { requestId } of some) expect(await resultOf(requestId)).toMatchObject({ status: 'FAILED' })
  })

  it('ends the document with the error if Postgres fails after the count', async () => {
    const own = await withTestDatabase()
    const alone = await startTestReceiver({ databaseUrl: own.url })
    onTestFinished(() => alone.stop())
    await deliver(alone.webhookUrl, okAudio().body)
    await own.sql.unsafe(`
      create function full_disk() returns trigger language plpgsql as
        $$ begin raise exception 'no space left on device' using errcode = 'disk_full'; end $$;
      create trigger full_disk before insert or update on mediadock.requests for each row execute function full_disk()`)
    const body = { filter: { key_name: 'live' }, dry_run: true }
    const answer = await call(alone, 'POST /api/deliveries/replay', { body })
    expect(answer.json).toMatchObject({ count: 1, error: { code: expect.any(String) } })
  })

  it.each<[string, unknown, string, string]>([
    ['no filter', {}, 'invalid_body', 'filter'],
    ['an empty filter', { filter: {} }, 'invalid_filter', 'filter'],
    ['an unknown parameter', { filter: { colour: 'red' } }, 'invalid_filter', 'colour'],
    ['a wrong value', { filter: { state: 'done' } }, 'invalid_filter', 'state'],
    ['a limit, which is of lists', { filter: { state: 'parked', limit: '1' } }, 'invalid_filter', 'limit'],
    ['a malformed cursor', { filter: { state: 'parked' }, cursor: 'x' }, 'invalid_filter', 'cursor'],
  ])('refuses %s', async (_what, body, code, named) => {
    expect(await replay(body)).toMatchObject({
      status: 400,
      json: { error: { code, message: expect.stringMatching(new RegExp(`^${named}: `)) } },
    })
  })
})

describe('the quarantine', () => {
  it('lists refused deliveries without signatures, and accepts them after the secret was added', async () => {
    const fresh = await startTestReceiver({ databaseUrl: database.url, settings: { keys: keysOf(liveKey) } })
    const sample = okAudio()
    const webhookId = randomUUID()
    const t = nowSeconds() - 7
    expect(
      await deliver(fresh.webhookUrl, sample.body, { webhookId, t, secret: sandboxKey.signing_secret }),
    ).toMatchObject({ status: 401 })
    const [item] = await eventually(async () => {
      const { json } = await call(fresh, `GET /api/quarantine?webhook_id=${webhookId}&reason=no_matching_secret`)
      return json.data.length === 1 ? json.data : undefined
    })
    expect(item).toMatchObject({
      id: expect.any(Number),
      reason: 'no_matching_secret',
      webhook_id: webhookId,
      bytes: sample.body.length,
      body_preview: sample.body.toString(),
    })
    expect(Object.keys(item.headers)).not.toContain('x-service-signature')
    expect(
      (await call(fresh, `GET /api/quarantine?until=${new Date(Date.now() - 3_600_000).toISOString()}`)).json.data,
    ).toEqual([])

    expect((await call(fresh, 'POST /api/quarantine/verify')).json).toEqual({ checked: 1, accepted: 0, refused: 1 })
    await fresh.stop()
    // The receiver that has all keys takes over: the quarantine is in Postgres.
    expect(await call(receiver, 'POST /api/quarantine/verify')).toMatchObject({
      status: 200,
      json: { checked: 1, accepted: 1, refused: 0 },
    })
    await eventually(
      async () => (await call(receiver, `GET /api/results/${sample.requestId}`)).json.status === 'COMPLETED',
    )
    expect((await call(receiver, `GET /api/quarantine?webhook_id=${webhookId}`)).json.data).toEqual([])
  })
})

describe('GET /api/stats', () => {
  it('returns the numbers of the first page', async () => {
    await deliverAndSettle({ receiver, database }, okImage(), { webhookId: randomUUID() })
    await receiver.deps.background.reconcileNow()
    const { status, json } = await call(receiver, 'GET /api/stats')
    expect(status).toBe(200)
    const [counted] =
      await database.sql`select count(*)::int as arrivals, (select count(*)::int from mediadock.deliveries where parked_reason is not null) as parked from mediadock.arrivals`
    expect(json).toMatchObject({
      pending: 0,
      oldest_seconds: 0,
      parked: counted?.['parked'],
      overdue: 0,
      recent: { minutes: 5, arrivals: counted?.['arrivals'] },
    })
    expect(json.recent.by_outcome).toContainEqual({ outcome: 'refused', reason: 'no_matching_secret', arrivals: 1 })
    expect(json.recent.ack_p95_ms).toBeGreaterThan(0)
    expect(json.quota_remaining.live).toBeLessThan(100_000)
    expect(json.arrivals[0]).toMatchObject({ outcome: 'accepted', key_name: 'live' })
    expect(json.results[0]).toMatchObject({ status: 'COMPLETED', media: [{ kind: 'image' }] })
  })
})
