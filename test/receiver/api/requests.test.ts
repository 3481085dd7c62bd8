import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { createFeedWatch, createWaiters } from '../../../src/receiver/api/feed-watch.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { imageResult, json as answerJson, type ProviderStand } from '../../support/provider-stand.ts'
import { liveKey, startTestReceiver, type TestReceiver } from '../../support/receiver.ts'
import { deliver, failed, okImage } from '../../support/webhooks.ts'
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

const track = (body: unknown) => call(receiver, 'POST /api/requests', { body })

describe('POST /api/requests', () => {
  it('tracks a request: 201, then 200 with the same row', async () => {
    const request_id = randomUUID()
    const body = { request_id, model: 'vela', key_name: 'sandbox', metadata: { order: 7 } }
    const first = await track(body)
    expect(first).toMatchObject({
      status: 201,
      json: { id: request_id, ...body, status: 'IN_QUEUE', sandbox: true, landed_at: null, overdue: false },
    })
    const again = await track({ ...body, model: 'other', metadata: {} })
    expect(again).toMatchObject({ status: 200, json: first.json })
    expect(await database.sql`select from mediadock.requests where request_id = ${request_id}`).toHaveLength(1)
  })

  it('requires only the request_id', async () => {
    const request_id = randomUUID()
    expect(await track({ request_id: request_id.toUpperCase() })).toMatchObject({
      status: 201,
      json: { request_id, model: null, key_name: null, sandbox: null, metadata: null },
    })
  })

  it.each([
    ['', 'must be a uuid'],
    ['17', 'must be a uuid'],
    [17, 'must be a string, not a number'],
    [undefined, 'is missing'],
  ])('refuses the request_id %j and says what it must be', async (request_id, words) => {
    expect(await track({ request_id })).toMatchObject({
      status: 400,
      json: { error: { code: 'invalid_body', message: `request_id: ${words}` } },
    })
  })

  it('joins the row of a faster webhook: adds missing data, corrects the key, keeps the state', async () => {
    const sample = failed()
    await deliverAndSettle({ receiver, database }, sample, { webhookId: randomUUID() })
    const { status, json } = await track({
      request_id: sample.requestId,
      model: 'vela',
      key_name: 'sandbox',
      metadata: { order: 8 },
    })
    expect({ status, json }).toMatchObject({
      status: 200,
      json: { status: 'FAILED', model: 'vela', key_name: 'sandbox', sandbox: true, metadata: { order: 8 } },
    })
  })

  it('answers 201 to exactly one of many concurrent calls', async () => {
    const request_id = randomUUID()
    const answers = await Promise.all(Array.from({ length: 12 }, () => track({ request_id })))
    expect(answers.map(({ status }) => status).sort((a, b) => a - b)).toEqual([...Array(11).fill(200), 201])
  })

  it.each([
    ['no object', '[]', 'the body must be a JSON object'],
    ['broken JSON', '{"request_id":', 'the body is not valid JSON'],
    ['no request_id', '{}', 'request_id'],
    ['a request_id that is no uuid', '{"request_id":"1"}', 'request_id'],
    ['an unknown member', `{"request_id":"${randomUUID()}","colour":1}`, 'colour'],
    ['metadata that is no object', `{"request_id":"${randomUUID()}","metadata":[]}`, 'metadata'],
    ['an empty model', `{"request_id":"${randomUUID()}","model":""}`, 'model'],
  ])('refuses %s', async (_what, raw, message) => {
    const { status, json } = await call(receiver, 'POST /api/requests', { raw })
    expect({ status, json }).toEqual({
      status: 400,
      json: {
        error: { type: 'invalid_request_error', code: 'invalid_body', message: expect.stringContaining(message) },
      },
    })
  })

  it('refuses values that Postgres cannot store, a body over 1 MiB, and one that is not JSON', async () => {
    const request_id = randomUUID()
    expect(
      await call(receiver, 'POST /api/requests', { raw: `{"request_id":"${request_id}","metadata":{"a":"\\u0000"}}` }),
    ).toMatchObject({
      status: 422,
      json: { error: { code: 'not_storable' } },
    })
    const large = JSON.stringify({ request_id, metadata: { text: 'x'.repeat(1_048_576) } })
    expect(await call(receiver, 'POST /api/requests', { raw: large })).toMatchObject({
      status: 413,
      json: { error: { code: 'payload_too_large' } },
    })
    const plain = { raw: `{"request_id":"${request_id}"}`, headers: { 'content-type': 'text/plain' } }
    expect(await call(receiver, 'POST /api/requests', plain)).toMatchObject({
      status: 415,
      json: { error: { code: 'unsupported_media_type' } },
    })
    expect(await database.sql`select from mediadock.requests where request_id = ${request_id}`).toHaveLength(0)
  })
})

describe('GET /api/requests/{id}', () => {
  it('returns all known events as one timeline', async () => {
    const { requestId, body } = okImage()
    stand.answer((id, _req, res) => answerJson(res, 200, imageResult(id, 2)))
    await track({ request_id: requestId, key_name: 'live' })
    const webhookId = randomUUID()
    await deliver(receiver.webhookUrl, body, { webhookId, secret: 'whsec_unknown' })
    const deliveryId = await deliverAndSettle({ receiver, database }, { requestId, body }, { webhookId })
    await receiver.deps.background.reconcileOne(requestId)
    const { status, json } = await call(receiver, `GET /api/requests/${requestId}`)
    expect(status).toBe(200)
    expect(json).toMatchObject({ id: requestId, status: 'COMPLETED', media_complete: true, cost: 4 })
    expect(json.media).toMatchObject([
      { kind: 'image', position: 0, width: 640, url: `https://media.test/${requestId}-0.png` },
      { kind: 'image', position: 1, height: 480, original_url: `https://media.test/${requestId}-1-original.png` },
    ])
    const kinds = json.timeline.map(({ kind }: { kind: string }) => kind)
    expect(kinds).toEqual([
      'provider_created',
      'provider_completed',
      'tracked',
      'arrival',
      'arrival',
      'delivery',
      'attempt',
      'landed',
      'poll',
      'media',
      'media',
    ])
    const times = json.timeline.map(({ at }: { at: string }) => at)
    expect(times).toEqual(times.toSorted((a: string, b: string) => a.localeCompare(b)))
    expect(json.timeline[3]).toMatchObject({
      arrival: { outcome: 'refused', reason: 'no_matching_secret', delivery_id: deliveryId },
    })
    expect(json.timeline[5]).toMatchObject({ delivery: { id: deliveryId, outcome: 'landed', arrivals: 2 } })
    expect(json.timeline[7]).toMatchObject({ status: 'COMPLETED', source: 'webhook' })
  })

  it.each(['not-a-uuid', randomUUID(), '%2e%2e', '%ff'])('answers 404 for %s', async (id) => {
    expect(await call(receiver, `GET /api/requests/${id}`)).toMatchObject({
      status: 404,
      json: { error: { code: 'not_found' } },
    })
  })
})

describe('POST /api/requests/{id}/reconcile', () => {
  it('polls the provider now and answers with the outcome', async () => {
    const request_id = randomUUID()
    stand.answer((id, _req, res) => answerJson(res, 200, imageResult(id)))
    await track({ request_id, key_name: 'live' })
    stand.calls.length = 0
    const { status, json } = await call(receiver, `POST /api/requests/${request_id}/reconcile`)
    expect({ status, json }).toMatchObject({
      status: 200,
      json: { scanned: 1, landed: 1, request: { id: request_id, status: 'COMPLETED', source: 'reconciler', polls: 1 } },
    })
    expect(stand.calls).toEqual([{ path: `/v1/requests/${request_id}`, authorization: `Bearer ${liveKey.api_key}` }])
  })

  it('waits for a transaction that writes the request, instead of answering 404', async () => {
    const request_id = randomUUID()
    stand.answer((id, _req, res) => answerJson(res, 200, imageResult(id)))
    await track({ request_id, key_name: 'live' })
    const writing = Promise.withResolvers<void>()
    const locked = Promise.withResolvers<void>()
    const holding = database.sql.begin(async (transaction) => {
      await transaction`select from mediadock.requests where request_id = ${request_id} for update`
      locked.resolve()
      await writing.promise
    })
    await locked.promise
    const reconciling = call(receiver, `POST /api/requests/${request_id}/reconcile`)
    await Promise.race([
      reconciling,
      eventually(
        async () =>
          (
            await database.sql`select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
          ).length > 0,
      ),
    ])
    writing.resolve()
    await holding
    expect(await reconciling).toMatchObject({ status: 200, json: { scanned: 1, landed: 1 } })
  })

  it('answers request_locked if a transaction holds a known request for longer', async () => {
    const request_id = randomUUID()
    await track({ request_id, key_name: 'live' })
    const answer = await database.sql.begin(async (transaction) => {
      await transaction`select from mediadock.requests where request_id = ${request_id} for update`
      return call(receiver, `POST /api/requests/${request_id}/reconcile`)
    })
    expect(answer).toMatchObject({ status: 503, json: { error: { code: 'request_locked' } } })
  })

  it('answers request_locked if a transaction holds a request that is tracked again, and writes nothing', async () => {
    const request_id = randomUUID()
    await track({ request_id })
    const answer = await database.sql.begin(async (transaction) => {
      await transaction`select from mediadock.requests where request_id = ${request_id} for update`
      return call(receiver, 'POST /api/requests', { body: { request_id, model: 'aurora-image' } })
    })
    expect(answer).toMatchObject({ status: 503, json: { error: { code: 'request_locked' } } })
    expect(await call(receiver, `GET /api/requests/${request_id}`)).toMatchObject({ json: { model: null } })
  })

  it('answers 404 for an unknown request', async () => {
    expect(await call(receiver, `POST /api/requests/${randomUUID()}/reconcile`)).toMatchObject({ status: 404 })
    expect(await call(receiver, 'POST /api/requests/x/reconcile')).toMatchObject({ status: 404 })
  })
})

describe('GET /api/results/{request_id}', () => {
  const land = (requestId: string) => deliver(receiver.webhookUrl, failed(requestId).body)
  const connectionsThatListen = () =>
    database.sql`select from pg_stat_activity where datname = current_database() and query ilike 'listen %'`

  it('answers the row of results, terminal or not', async () => {
    const request_id = randomUUID()
    await track({ request_id, model: 'vela', metadata: { order: 9 } })
    expect((await call(receiver, `GET /api/results/${request_id}`)).json).toEqual({
      request_id,
      status: 'IN_QUEUE',
      model: 'vela',
      output: null,
      media_complete: false,
      cost: null,
      error_code: null,
      error_message: null,
      created_at: expect.stringMatching(/Z$/),
      completed_at: null,
      landed_at: null,
      source: null,
      key_name: null,
      sandbox: null,
      metadata: { order: 9 },
      idempotency_key: null,
      progress: null,
      queue_position: null,
      source_name: 'generation-queue',
      external_id: request_id,
    })
    await land(request_id)
    const landed = await eventually(async () => {
      const { json } = await call(receiver, `GET /api/results/${request_id}?wait=0`)
      return json.landed_at === null ? undefined : json
    })
    expect(landed).toMatchObject({
      status: 'FAILED',
      cost: 0,
      error_code: 'GENERATION_FAILED',
      error_message: 'the model gave up',
      source: 'webhook',
    })
  })

  it('answers all waiting callers as soon as the result lands, over one LISTEN connection', async () => {
    const request_id = randomUUID()
    await track({ request_id })
    let over = 0
    const waits = Array.from({ length: 20 }, async () => {
      const answer = await call(receiver, `GET /api/results/${request_id}?wait=30`)
      over += 1
      return answer
    })
    await eventually(async () => (await connectionsThatListen()).length === 1)
    expect(over).toBe(0)
    await land(request_id)
    const landed = performance.now()
    const answers = await Promise.all(waits)
    expect(performance.now() - landed).toBeLessThan(20_000)
    expect(answers.every(({ status, json }) => status === 200 && json.status === 'FAILED')).toBe(true)
    expect(await connectionsThatListen()).toHaveLength(1)
  })

  it('answers at once if the result has already landed', async () => {
    const request_id = randomUUID()
    await land(request_id)
    await eventually(async () => (await call(receiver, `GET /api/results/${request_id}`)).json.landed_at)
    const started = performance.now()
    expect(await call(receiver, `GET /api/results/${request_id}?wait=30`)).toMatchObject({
      status: 200,
      json: { status: 'FAILED' },
    })
    expect(performance.now() - started).toBeLessThan(20_000)
  })

  it('finds a result that landed without a notification, as behind a pooler', async () => {
    const request_id = randomUUID()
    await track({ request_id })
    const waiting = call(receiver, `GET /api/results/${request_id}?wait=30`)
    await eventually(async () => (await connectionsThatListen()).length === 1)
    await database.sql`update mediadock.requests set status = 'CANCELED', landed_at = now() where request_id = ${request_id}`
    expect(await waiting).toMatchObject({ status: 200, json: { status: 'CANCELED' } })
  })

  it('answers with the unfinished row when the time is over', async () => {
    const request_id = randomUUID()
    await track({ request_id })
    const started = performance.now()
    expect(await call(receiver, `GET /api/results/${request_id}?wait=1`)).toMatchObject({
      status: 200,
      json: { status: 'IN_QUEUE', landed_at: null },
    })
    expect(performance.now() - started).toBeGreaterThan(900)
    expect(performance.now() - started).toBeLessThan(20_000)
  })

  it('survives a LISTEN connection that is cut while calls wait', async () => {
    const request_id = randomUUID()
    await track({ request_id })
    const waiting = call(receiver, `GET /api/results/${request_id}?wait=30`)
    await eventually(async () => (await connectionsThatListen()).length === 1)
    await database.sql`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and query ilike 'listen %'`
    await land(request_id)
    expect(await waiting).toMatchObject({ status: 200, json: { status: 'FAILED' } })
  })

  it('stops waiting when the client disconnects, and ends on shutdown', async () => {
    const other = await startTestReceiver({ databaseUrl: database.url })
    const request_id = randomUUID()
    await track({ request_id })
    const client = new AbortController()
    const abandoned = fetch(`${other.internalUrl}api/results/${request_id}?wait=60`, { signal: client.signal }).catch(
      () => 'gone',
    )
    const waiting = call(other, `GET /api/results/${request_id}?wait=60`)
    await eventually(async () => (await connectionsThatListen()).length === 2)
    client.abort()
    expect(await abandoned).toBe('gone')
    const started = performance.now()
    await other.stop()
    expect(await waiting).toMatchObject({ status: 200, json: { status: 'IN_QUEUE' } })
    expect(performance.now() - started).toBeLessThan(20_000)
    await eventually(async () => (await connectionsThatListen()).length === 1)
  })

  it('lets 1,000 callers wait, and another when one leaves', async () => {
    const stop = new AbortController()
    const [first, others] = [new AbortController(), new AbortController()]
    const { db, logger, settings } = receiver.deps
    const watch = createFeedWatch({ db, databaseUrl: settings.databaseUrl, logger, signal: stop.signal })
    const untilOver = createWaiters({ watch, overOf: async () => [], logger, signal: stop.signal })
    const wait = ({ signal }: AbortController) => untilOver(randomUUID(), { clientGone: signal, seconds: 60 })
    const waiting = Array.from({ length: 1000 }, (_, n) => wait(n === 0 ? first : others))
    await expect(wait(others)).rejects.toMatchObject({ status: 503, code: 'too_many_waiting' })
    first.abort()
    await waiting[0]
    waiting.push(wait(others))
    await expect(wait(others)).rejects.toMatchObject({ status: 503 })
    others.abort()
    await Promise.all(waiting)
    stop.abort()
  })

  it('answers 404 for an unknown request, and 400 for a malformed wait', async () => {
    expect(await call(receiver, `GET /api/results/${randomUUID()}?wait=30`)).toMatchObject({ status: 404 })
    expect(await call(receiver, 'GET /api/results/x')).toMatchObject({ status: 404 })
    for (const wait of ['61', '-1', 'x', '1.5', '']) {
      const { status, json } = await call(receiver, `GET /api/results/${randomUUID()}?wait=${wait}`)
      expect({ wait, status, code: json.error.code }).toEqual({ wait, status: 400, code: 'invalid_filter' })
    }
  })
})
