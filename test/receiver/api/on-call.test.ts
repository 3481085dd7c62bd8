import { randomUUID } from 'node:crypto'
import request from 'supertest'
import { beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { postgresTime } from '../../../src/platform/postgres/time.ts'
import { takeCall } from '../../../src/receiver/fetching/call-budget.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { imageResult, json, type ProviderStand } from '../../support/provider-stand.ts'
import { keysOf, liveKey, startTestReceiver, type TestReceiver } from '../../support/receiver.ts'
import { deliver, failed, nowSeconds, okImage } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { call, deliverAndSettle, follow } from './calls.ts'

let database: TestDatabase
let stand: ProviderStand
let receiver: TestReceiver

beforeAll(async () => {
  const its = await withReceiver({ stand: true })
  ;({ database, receiver, stand } = its)
  // As a delivery would have it that was accepted a second ago: what fails from here may be the provider's.
  await database.sql`insert into mediadock.known_senders values ('live', '127.0.0.1', now())`
  return its.stop
})
beforeEach(async () => {
  receiver.setNow(undefined)
  stand.answer((id, _req, res) => json(res, 200, imageResult(id)))
  // One by one: the receiver reads several of them at a time.
  for (const table of [
    'audit',
    'quarantine',
    'arrivals',
    'arrival_counts',
    'minutes',
    'deliveries',
    'requests',
    'inbox',
    'call_budgets',
    'key_uses',
    'issues',
  ])
    await database.sql`truncate ${database.sql(`mediadock.${table}`)}`
})

const get = async (path: string) => (await call(receiver, `GET ${path}`)).json
const audit = async () =>
  (await get('/api/audit')).data.map(({ id: _id, at: _at, ...entry }: Record<string, unknown>) => entry)
const causes = async () => (await get('/api/problems')).data.map(({ cause }: { cause: string }) => cause)
const track = (requestId: string) =>
  database.sql`insert into mediadock.requests (request_id, key_name, tracked_at) values (${requestId}, 'live', now() - interval '1 hour')`

async function refuse(webhookId: string = randomUUID(), body = failed().body): Promise<void> {
  const logged = async () => (await database.sql`select from mediadock.arrivals where webhook_id = ${webhookId}`).length
  const before = await logged()
  expect((await deliver(receiver.webhookUrl, body, { webhookId, secret: 'whsec_nobody' })).status).toBe(401)
  await eventually(async () => (await logged()) > before)
  await eventually(
    async () => (await database.sql`select from mediadock.quarantine where webhook_id = ${webhookId}`).length > before,
  )
}

describe('the audit', () => {
  it('lists actions with actor and outcome, without the routine calls of services', async () => {
    const sample = okImage()
    const id = await deliverAndSettle({ receiver, database }, sample, { webhookId: randomUUID() })
    await refuse()
    const open = randomUUID()
    await call(receiver, 'POST /api/requests', { body: { request_id: open } })
    await call(receiver, `POST /api/requests/${open}/reconcile`, { headers: { 'x-forwarded-for': '203.0.113.7' } })
    await call(receiver, `POST /api/deliveries/${id}/replay`)
    await call(receiver, 'POST /api/deliveries/replay', { body: { filter: { state: 'processed', key_name: 'live' } } })
    await call(receiver, 'POST /api/quarantine/verify')
    await call(receiver, 'POST /api/reconciler/run')
    const key = randomUUID()
    await call(receiver, 'POST /api/generations', {
      body: { model: 'aurora-image', input: { prompt: 'a secret plan' }, idempotency_key: key },
    })
    const entries = await audit()
    expect(entries).toMatchObject([
      { action: 'reconcile_run', target: null, detail: { scanned: 1 } },
      { action: 'verify_quarantine', detail: { checked: 1, accepted: 0, refused: 1 } },
      {
        action: 'replay_many',
        target: 'state=processed&key_name=live',
        detail: { replayed: 1, changed: 0, failed: 0 },
      },
      { action: 'replay', target: id, detail: { replayed: 1, changed: 0 } },
      { action: 'reconcile', target: open, actor: '203.0.113.7', detail: { scanned: 1, landed: 1 } },
    ])
    expect(new Set(entries.map(({ via }: { via: string }) => via))).toEqual(new Set(['api']))
    expect(JSON.stringify(entries)).not.toContain('a secret plan')
    expect((await get(`/api/audit?action=replay&target=${id}`)).data).toHaveLength(1)
    expect(await follow(receiver, '/api/audit?limit=2')).toHaveLength(5)
    expect(await call(receiver, 'GET /api/audit?via=door')).toMatchObject({
      status: 400,
      json: { error: { code: 'invalid_filter', message: expect.stringContaining('via') } },
    })
  })

  it('omits calls that changed nothing: a dry run, an unknown id, a wrong body', async () => {
    const id = await deliverAndSettle({ receiver, database }, failed(), { webhookId: randomUUID() })
    await call(receiver, `POST /api/deliveries/${id}/replay`, { body: { dry_run: true } })
    await call(receiver, 'POST /api/deliveries/replay', { body: { filter: { state: 'processed' }, dry_run: true } })
    await call(receiver, `POST /api/deliveries/${randomUUID()}/replay`)
    await call(receiver, `POST /api/requests/${randomUUID()}/reconcile`)
    await call(receiver, 'POST /api/requests', { body: { request_id: 'x' } })
    expect(await audit()).toEqual([])
  })

  it('records failures with their errors; an action is answered even if its audit entry cannot be written', async () => {
    await database.sql`alter table mediadock.audit rename to audit_away`
    const requestId = randomUUID()
    try {
      expect((await call(receiver, 'POST /api/requests', { body: { request_id: requestId } })).status).toBe(201)
    } finally {
      await database.sql`alter table mediadock.audit_away rename to audit`
    }
    await database.sql`alter table mediadock.quarantine rename to quarantine_away`
    try {
      expect((await call(receiver, 'POST /api/quarantine/verify')).status).toBe(500)
    } finally {
      await database.sql`alter table mediadock.quarantine_away rename to quarantine`
    }
    expect(await audit()).toMatchObject([
      { action: 'verify_quarantine', detail: { error: expect.stringContaining('mediadock.quarantine') } },
    ])
  })
})

describe('the reconciler', () => {
  it('runs on demand, and the run is listed with its outcome', async () => {
    const [found, lost, limited] = [randomUUID(), randomUUID(), randomUUID()]
    for (const id of [found, lost, limited]) await track(id)
    stand.answer((id, _req, res) => {
      if (id === found) json(res, 200, imageResult(id))
      else if (id === lost) json(res, 404, {})
      else json(res, 429, {}, { 'retry-after': '1' })
    })
    const { status, json: started } = await call(receiver, 'POST /api/reconciler/run')
    expect(status).toBe(200)
    expect(started).toMatchObject({ state: 'ended', run: { trigger: 'manual', outcome: 'ok', error: null } })
    expect(started.run.landed).toBe(1)
    expect(started.run.rate_limited).toBeGreaterThan(0)
    expect((await get('/api/reconciler/runs')).data[0]).toEqual(started.run)
    expect(await get('/api/reconciler')).toMatchObject({
      last_run: { id: started.run.id },
      silent: false,
      backlog: { due: expect.any(Number) },
    })
  })

  it("estimates the backlog's duration from the keys' budgets", async () => {
    const narrow = await startTestReceiver({
      databaseUrl: database.url,
      providerUrl: stand.url,
      settings: { fetchRatePerMinute: 10 },
    })
    for (let n = 0; n < 17; n += 1) await track(randomUUID())
    // Submits of earlier tests.
    await database.sql`truncate mediadock.call_budgets`
    expect((await call(narrow, 'GET /api/reconciler')).json.backlog).toEqual({
      due: 17,
      minutes: 2,
      incomplete: 0,
      per_minute: 20,
      complete_by: null,
      due_capped: false,
      incomplete_capped: false,
    })
    await database.sql`insert into mediadock.requests (request_id, key_name, status, source, landed_at, next_poll_at)
      select gen_random_uuid(), 'live', 'FAILED', 'webhook', now(), now() + interval '1 minute' from generate_series(1, 3)`
    const estimate = async () => {
      const before = Date.now()
      const { backlog } = (await call(narrow, 'GET /api/stats')).json
      const completeBy = Date.parse(backlog.complete_by)
      // Postgres's clock, to the second.
      return { backlog, atLeast: completeBy - Date.now() - 1000, atMost: completeBy - before + 1000 }
    }
    // No schedule polls these any more, so they have no time of completion.
    await database.sql`insert into mediadock.requests (request_id, key_name, status, source, landed_at, next_poll_at, poll_outcome)
      select gen_random_uuid(), 'live', 'FAILED', 'webhook', now(), 'infinity', 'lost' from generate_series(1, 5)`
    const alone = await estimate()
    expect(alone.backlog).toMatchObject({ due: 17, incomplete: 3 })
    // Three at ten a minute.
    expect(alone.atLeast).toBeLessThanOrEqual(18_000)
    expect(alone.atMost).toBeGreaterThanOrEqual(18_000)
    // While submits want all that is theirs, completing gets its share: three at six a minute.
    for (let n = 0; n < 4; n += 1)
      await takeCall(narrow.deps.db, {
        keyName: 'live',
        limitPerMinute: 10,
        purpose: 'submitting',
        now: postgresTime(),
      })
    const beside = await estimate()
    expect(beside.backlog.per_minute).toBe(16)
    expect(beside.atLeast).toBeLessThanOrEqual(30_000)
    expect(beside.atMost).toBeGreaterThanOrEqual(30_000)
    await database.sql`update mediadock.call_budgets set failing_since = now() where key_name = 'live'`
    expect((await estimate()).backlog).toMatchObject({ incomplete: 3, complete_by: null })
    await narrow.stop()
  })
})

describe('the keys', () => {
  it('are shown with a fingerprint and never with a secret; a retired or removed one that still matches is flagged', async () => {
    const old = { name: 'old', signing_secret: 'whsec_of_an_old_key', retired: true }
    await database.sql`insert into mediadock.key_uses values ('gone', now() - interval '2 days', now() - interval '1 hour', 7), ('long gone', now() - interval '3 days', now() - interval '2 days', 7)`
    const narrow = await startTestReceiver({
      databaseUrl: database.url,
      providerUrl: stand.url,
      settings: { keys: keysOf(liveKey, old), fetchRatePerMinute: 5 },
    })
    await deliver(narrow.webhookUrl, failed().body, { secret: old.signing_secret })
    await eventually(async () => (await database.sql`select from mediadock.key_uses where key_name = 'old'`).length > 0)
    const requestId = randomUUID()
    await track(requestId)
    stand.answer((_id, _req, res) => json(res, 401, {}))
    // Polls left by the previous test may have run meanwhile.
    await database.sql`truncate mediadock.call_budgets`
    await call(narrow, `POST /api/requests/${requestId}/reconcile`)
    const { json: keys, text } = await call(narrow, 'GET /api/keys')
    expect(keys.data).toMatchObject([
      {
        name: 'live',
        configured: true,
        retired: false,
        still_matches: false,
        calls: 1,
        quota_left: 4,
        blocked_until: expect.any(String),
        blocked_reason: 'unauthorized',
      },
      // The first 8 hex digits of SHA-256 of the secret.
      { name: 'old', retired: true, environment: null, matches: 1, still_matches: true, fingerprint: 'dae768f9' },
      { name: 'gone', configured: false, still_matches: true, fingerprint: null, matches: 7 },
      { name: 'long gone', configured: false, still_matches: false },
    ])
    for (const secret of [liveKey.signing_secret, liveKey.api_key, old.signing_secret])
      expect(text).not.toContain(secret)
    expect((await call(narrow, 'GET /api/problems')).json.data.map(({ cause }: { cause: string }) => cause)).toEqual([
      'key_refused:live',
      'overdue',
    ])
    // Between the end of a rest and the next refusal, the key is still refused.
    const liveKeyAfter = async (restEnded: string) => {
      await database.sql`update mediadock.call_budgets set blocked_until = now() - ${restEnded}::interval where key_name = 'live'`
      return (await call(narrow, 'GET /api/keys')).json.data[0]
    }
    expect(await liveKeyAfter('1 min')).toMatchObject({ blocked_until: null, blocked_reason: 'unauthorized' })
    expect((await call(narrow, 'GET /api/problems')).json.data).toContainEqual(
      expect.objectContaining({
        cause: 'key_refused:live',
        text: expect.stringContaining('The next call tries it again.'),
      }),
    )
    expect(await liveKeyAfter('61 min')).toMatchObject({ blocked_until: null, blocked_reason: null })
    await liveKeyAfter('1 min')
    stand.answer((id, _req, res) => json(res, 200, imageResult(id)))
    await call(narrow, `POST /api/requests/${requestId}/reconcile`)
    expect((await call(narrow, 'GET /api/keys')).json.data[0]).toMatchObject({
      blocked_until: null,
      blocked_reason: null,
    })
    await narrow.stop()
  })
})

describe('the give-up clock', () => {
  it('counts failed attempts until the webhook is accepted', async () => {
    const webhookId = randomUUID()
    const { body, requestId } = okImage()
    await refuse(webhookId, body)
    await refuse(webhookId, body)
    await refuse(randomUUID(), Buffer.from('no json'))
    const [of] = (await get('/api/give-ups')).data.filter((one: { id: string }) => one.id === webhookId)
    expect(of).toMatchObject({
      request_id: requestId,
      request_status: null,
      attempts_seen: 2,
      attempts_spent: 2,
      given_up: false,
      reason: 'no_matching_secret',
    })
    // 60, 120, 240 and 480 s after the second.
    expect(Date.parse(of.last_attempt_at) - Date.parse(of.last_seen)).toBe(900_000)
    expect(Date.parse(of.next_attempt_at) - Date.parse(of.last_seen)).toBe(60_000)

    receiver.setNow(new Date(Date.now() + 3_600_000))
    expect((await get('/api/give-ups')).data).toMatchObject([
      { given_up: true, request_id: null },
      { given_up: true, next_attempt_at: null, attempts_spent: 6, request_id: requestId },
    ])
    expect(await causes()).toContain('refused:no_matching_secret')
    receiver.setNow(undefined)
    await deliverAndSettle({ receiver, database }, { body, requestId }, { webhookId })
    expect((await get('/api/give-ups')).data.map(({ id }: { id: string }) => id)).not.toContain(webhookId)
  })
})

describe('what is wrong', () => {
  it('is empty at first, then lists refused deliveries with cause, start and a link', async () => {
    expect(await get('/api/problems')).toEqual({ data: [] })
    const { body, requestId } = failed()
    await call(receiver, 'POST /api/requests', { body: { request_id: requestId } })
    await refuse(randomUUID(), body)
    await deliver(receiver.webhookUrl, failed().body, { t: nowSeconds() - 900 })
    await deliver(receiver.webhookUrl, failed().body)
    await eventually(async () => (await database.sql`select from mediadock.arrivals`).length === 3)
    const { data } = await get('/api/problems')
    expect(data).toMatchObject([
      {
        severity: 'critical',
        cause: 'refused:no_matching_secret',
        href: '/parked?reason=no_matching_secret',
        text: expect.stringMatching(/^1 of 3 arrivals in the last 5 minutes was refused: no secret matches\./),
      },
      { severity: 'warning', cause: 'refused:timestamp_too_old' },
    ])
  })

  it('omits deliveries accepted since, regardless of later ones', async () => {
    const webhookId = randomUUID()
    await deliverAndSettle({ receiver, database }, failed(), { webhookId })
    const fail = (reason: string, ids: readonly string[]) =>
      database.sql`insert into mediadock.arrivals (arrived_at, outcome, reason, status, ack_ms, webhook_id, key_name)
        select now(), 'unavailable', ${reason}, 503, 1, id, 'live' from unnest(${[...ids]}::text[]) id`
    await fail('postgres_failed', [webhookId])
    expect(await causes()).toEqual([])
    await fail('internal_error', [randomUUID()])
    await fail(
      'postgres_too_slow',
      Array.from({ length: 250 }, () => randomUUID()),
    )
    expect((await causes()).toSorted()).toEqual(['unavailable:internal_error', 'unavailable:postgres_too_slow'])
  })

  it('lists parked, delayed and overdue items', async () => {
    await deliverAndSettle(
      { receiver, database },
      { requestId: '', body: Buffer.from('nonsense') },
      { webhookId: randomUUID() },
    )
    const pending = randomUUID()
    await database.sql`insert into mediadock.deliveries (id, webhook_id, key_name, signed_at, received_at, headers, body)
      values (${pending}, 'waits', 'live', now(), now() - interval '3 minutes', '{}', '')`
    await database.sql`insert into mediadock.inbox (delivery_id, due_at) values (${pending}, now() + interval '5 minutes')`
    await track(randomUUID())
    expect(await causes()).toEqual(['inbox_old', 'overdue', 'parked:not_json'])
    expect(await get('/api/parked/causes')).toMatchObject({ data: [{ reason: 'not_json', count: 1 }] })
  })
})

describe('the minutes', () => {
  it('are merged into fewer points for longer ranges, up to 31 days', async () => {
    await database.sql`insert into mediadock.minutes (minute, written_at, arrivals, ack_p95_ms, landed, inbox_pending)
      select minute, minute, '{"accepted": 2, "refused/no_matching_secret": 1}', extract(minute from minute), 3, 0
      from generate_series(date_trunc('hour', now()) - interval '48 hours', date_trunc('hour', now()) - interval '1 minute', interval '1 minute') minute`
    const hour = 3_600_000
    const until = Math.floor(Date.now() / hour) * hour
    const between = (hours: number) =>
      `/api/minutes?since=${new Date(until - hours * hour).toISOString()}&until=${new Date(until).toISOString()}`
    const short = await get(between(2))
    expect([short.step_minutes, short.minutes.length]).toEqual([1, 120])
    const long = await get(between(48))
    expect([long.step_minutes, long.minutes.length]).toEqual([5, 576])
    expect(long.minutes[0]).toMatchObject({
      arrivals: { accepted: 10, 'refused/no_matching_secret': 5 },
      ack_p95_ms: 4,
      inbox_pending: 0,
    })
    expect(
      (await get(between(48))).minutes.every(({ minute }: { minute: string }) => Date.parse(minute) % 300_000 === 0),
    ).toBe(true)
    expect(await call(receiver, `GET ${between(24 * 32)}`)).toMatchObject({
      status: 400,
      json: { error: { message: expect.stringContaining('since') } },
    })
    expect(
      await call(
        receiver,
        `GET /api/minutes?since=${new Date(until).toISOString()}&until=${new Date(until).toISOString()}`,
      ),
    ).toMatchObject({ status: 400 })
  })
})

it('throttled wrong tokens are a problem that names their address, while throttled', async () => {
  const token = 'a-token-of-at-least-32-characters-aaaa'
  const its = await withReceiver({ settings: { internalToken: token } })
  onTestFinished(its.stop)
  const ask = (given: string) =>
    request(its.receiver.internalUrl).get('api/problems').set('authorization', `Bearer ${given}`)
  const wrongTokens = async () => {
    const { data }: { data: { cause: string }[] } = (await ask(token)).body
    return data.filter(({ cause }) => cause === 'wrong_tokens')
  }
  for (let n = 0; n < 10; n += 1) expect((await ask('old')).status).toBe(401)
  expect((await ask('old')).status).toBe(429)
  expect(await wrongTokens()).toMatchObject([{ severity: 'warning', count: 1, affected: ['127.0.0.1'] }])
  its.receiver.setNow(new Date(Date.now() + 61_000))
  expect(await wrongTokens()).toEqual([])
})
