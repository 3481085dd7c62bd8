import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { readResults } from '../../../src/client/read-results.ts'
import { createPool } from '../../../src/platform/postgres/postgres.ts'
import { later, postgresTime } from '../../../src/platform/postgres/time.ts'
import * as intents from '../../../src/receiver/submitting/generations.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { json } from '../../support/provider-stand.ts'
import { liveKey, type TestReceiver } from '../../support/receiver.ts'
import { deliver, failed } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { call } from '../api/calls.ts'

type Posted = { path: string; key: string; authorization: string; body: { input: object; webhook_url: string } }
type Respond = (posted: Posted, res: http.ServerResponse) => void

let database: TestDatabase
let receiver: TestReceiver
let server: http.Server
let posted: Posted[] = []
let respond: Respond

/** The provider's rule for an Idempotency-Key: one request, and so one charge. */
const known = new Map<string, string>()
const accept: Respond = ({ key }, res) => {
  const id = known.get(key) ?? randomUUID()
  known.set(key, id)
  const base = `http://127.0.0.1/v1/requests/${id}`
  json(res, 200, {
    request_id: id,
    status: 'IN_QUEUE',
    queue_position: 0,
    status_url: `${base}/status`,
    response_url: base,
    cancel_url: `${base}/cancel`,
    cost: 4,
  })
}

beforeAll(async () => {
  server = http.createServer((req, res) => {
    let text = ''
    req.on('data', (chunk) => (text += chunk))
    req.on('end', () => {
      const one = {
        path: req.url ?? '',
        key: String(req.headers['idempotency-key']),
        authorization: req.headers.authorization ?? '',
        body: JSON.parse(text || '{}'),
      }
      posted.push(one)
      respond(one, res)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const its = await withReceiver({
    providerUrl: `http://127.0.0.1:${port}`,
    settings: { webhookPublicUrl: 'https://hooks.test/webhooks' },
  })
  ;({ database, receiver } = its)
  respond = accept
  return its.stop
})
afterEach(async () => {
  // A 429 rests the key for a while, which is not what the next test is about.
  await database.sql`delete from mediadock.call_budgets`
  // Nor are submits that this one has left: of a key that was refused only one is posted at a time.
  await database.sql`delete from mediadock.generations where state = 'pending'`
  posted = []
  respond = accept
  receiver.setNow(undefined)
})
afterAll(async () => {
  server.closeAllConnections()
  server.close()
})

const body = { model: 'aurora-image', input: { prompt: 'a lighthouse' } }
const submit = (more: object = {}) =>
  receiver.deps.submitter.submit({ ...body, idempotency_key: randomUUID(), ...more })

async function pass(minutes: number): Promise<void> {
  const now = new Date(Date.now() + minutes * 60_000)
  receiver.setNow(now)
  await receiver.deps.submitter.runOnce()
  // The loop of the receiver may have been faster: what it has claimed is claimed for 30 s.
  await eventually(async () => {
    const claimed = await database.sql`select from mediadock.generations where state = 'pending'
      and next_attempt_at = ${now.toISOString()}::timestamptz + interval '30 seconds'`
    return claimed.length === 0
  })
}

const noCredits = { error: { type: 'billing_error', code: 'insufficient_credits', message: 'no credits' } }
const badKey = { error: { type: 'invalid_request_error', code: 'invalid_api_key', message: 'no such key' } }
const tooMany: Respond = (_one, res) =>
  json(res, 429, { error: { type: 'x', code: 'rate_limit_exceeded', message: '' } })

/** Changes after a position, once there is one. */
async function changesAfter(position: number) {
  return (await call(receiver, `GET /api/feed?after=${position}&wait=10`)).json.data
}

/** The position after which the feed has what comes from now on. */
async function headOfFeed(): Promise<number> {
  await eventually(async () => (await database.sql`select from mediadock.changes`).length === 0)
  return (await call(receiver, 'GET /api/feed')).json.head
}

describe('a submit in doubt', () => {
  it.each([401, 403])(
    'is not ended by a %d: the charge of the lost answer is found once the key is accepted again',
    async (status) => {
      respond = (one, res) => {
        accept(one, Object.assign(Object.create(res), { writeHead: () => ({ end: () => res.socket?.destroy() }) }))
      }
      const before = known.size
      const { idempotency_key: key } = Object((await submit()).body)
      respond = (_one, res) => json(res, status, badKey)
      await pass(10)
      expect(await receiver.deps.submitter.find(key)).toMatchObject({
        state: 'pending',
        last_error: `${status} invalid_api_key`,
      })
      respond = accept
      await pass(30)
      expect(await receiver.deps.submitter.find(key)).toMatchObject({ state: 'submitted', request_id: known.get(key) })
      expect(known.size).toBe(before + 1)
    },
  )

  it("is flushed to disk before each of its calls, regardless of the database's settings", async () => {
    await database.sql.unsafe(`
      create table seen (at_commit text);
      create function see() returns trigger language plpgsql as $$ begin insert into seen values (current_setting('synchronous_commit')); return null; end $$;
      create constraint trigger seen after insert or update on mediadock.generations deferrable initially deferred for each row execute function see();
      do $$ begin execute format('alter database %I set synchronous_commit = off', current_database()); end $$`)
    onTestFinished(async () => {
      await database.sql.unsafe('drop function see() cascade; drop table seen')
    })
    const pool = createPool({ url: database.url, max: 1 })
    onTestFinished(() => pool.close())
    const intent = {
      model: 'aurora-image',
      input: {},
      keyName: 'live',
      webhookUrl: 'https://hooks.test/',
      metadata: undefined,
    }
    await intents.open(pool.db, { ...intent, idempotencyKey: randomUUID(), now: postgresTime() })
    expect(await intents.claimDue(pool.db, { limit: 100, now: later(postgresTime(), 3600) })).toHaveLength(1)
    expect(await database.sql`select distinct at_commit from seen`).toEqual([{ at_commit: 'on' }])
  })
})

describe('a provider without an answer', () => {
  const waiting = async () => {
    const { json: problems } = await call(receiver, 'GET /api/problems')
    return problems.data.filter(({ cause }: { cause: string }) => cause === 'provider_unreachable')
  }

  it('is a problem once a submit has waited for a minute, although no poll is due', async () => {
    // Other tests submit at later times than now.
    await database.sql`update mediadock.requests set tracked_at = tracked_at - interval '1 day'`
    respond = (_one, res) => json(res, 502, 'away')
    await submit()
    expect(await waiting()).toEqual([])
    await pass(2)
    expect(await waiting()).toMatchObject([
      { severity: 'warning', count: 1, text: expect.stringContaining('Last error: answered 502.') },
    ])
    await pass(10)
    expect(await waiting()).toMatchObject([{ severity: 'critical' }])
    respond = accept
    // The first submit that is accepted shows that the provider is back, while the other waits for its next attempt.
    await submit()
    expect(await waiting()).toEqual([])
  })

  it('is not the problem while the key has no call', async () => {
    respond = tooMany
    await submit()
    await submit()
    receiver.setNow(new Date(Date.now() + 120_000))
    expect(await waiting()).toEqual([])
  })
})

describe('a key that the provider refuses', () => {
  it('is reported to the caller of a first attempt, and rests', async () => {
    respond = (_one, res) => json(res, 401, badKey)
    expect(await submit()).toEqual({ status: 401, body: badKey })
    expect(await submit()).toMatchObject({
      status: 202,
      body: { state: 'pending', last_error: 'not called: unauthorized' },
    })
    expect(posted).toHaveLength(1)
  })

  it('delays a submit that was answered 202, and does not end it', async () => {
    respond = tooMany
    const { idempotency_key: key } = Object((await submit()).body)
    respond = (_one, res) => json(res, 401, badKey)
    await pass(10)
    expect(await receiver.deps.submitter.find(key)).toMatchObject({
      state: 'pending',
      last_error: '401 invalid_api_key',
    })
    respond = accept
    await pass(30)
    expect(await receiver.deps.submitter.find(key)).toMatchObject({ state: 'submitted' })
  })
})

describe('a submit that ends without a request', () => {
  it("is a change of the feed if it was answered 202, with its key and the provider's code", async () => {
    respond = tooMany
    const after = await headOfFeed()
    const { idempotency_key: key } = Object((await submit({ metadata: { order: 12 } })).body)
    respond = (_one, res) => json(res, 402, noCredits)
    await pass(10)
    const [change, ...others] = await changesAfter(after)
    expect(others).toEqual([])
    expect(change).toEqual({
      position: expect.any(Number),
      request_id: null,
      idempotency_key: key,
      status: 'REFUSED',
      media_complete: false,
      changed_at: expect.any(String),
      error: { code: 'insufficient_credits', message: 'no credits' },
      metadata: { order: 12 },
      result: null,
      media: [],
    })
    const [row] = await database.sql`select * from mediadock.feed where position = ${change.position}`
    expect(row).toMatchObject({
      request_id: null,
      idempotency_key: key,
      status: 'REFUSED',
      error_code: 'insufficient_credits',
    })
    expect(await database.sql`select from mediadock.results where idempotency_key = ${key}`).toEqual([])
    const stop = new AbortController()
    for await (const read of readResults({ from: { sql: database.sql }, after, signal: stop.signal })) {
      expect({ ...read, changed_at: '' }).toEqual({ ...change, changed_at: '' })
      stop.abort()
    }
  })

  it('is a change if it was given up', async () => {
    respond = (_one, res) => json(res, 500, {})
    const after = await headOfFeed()
    const { idempotency_key: key } = Object((await submit()).body)
    await pass(24 * 60)
    // Submits of other tests expire with it.
    expect(await changesAfter(after)).toContainEqual(
      expect.objectContaining({
        idempotency_key: key,
        status: 'REFUSED',
        error: { code: 'submit_expired', message: expect.any(String) },
      }),
    )
  })

  it("is no change if the caller got the provider's answer", async () => {
    respond = (_one, res) => json(res, 402, noCredits)
    const after = await headOfFeed()
    expect(await submit()).toMatchObject({ status: 402 })
    expect(await headOfFeed()).toBe(after)
    const refused = async () => {
      const { json: problems } = await call(receiver, 'GET /api/problems')
      return problems.data.find(({ cause }: { cause: string }) => cause === 'credits_spent:live').count
    }
    const before = await refused()
    await submit()
    expect(await refused()).toBe(before + 1)
  })

  it('is a change if another caller with its key was answered 202 meanwhile', async () => {
    const idempotency_key = randomUUID()
    const after = await headOfFeed()
    respond = async (_one, res) => {
      expect(await submit({ idempotency_key })).toMatchObject({ status: 202, body: { state: 'pending' } })
      json(res, 402, noCredits)
    }
    expect(await submit({ idempotency_key })).toMatchObject({ status: 402 })
    expect(await changesAfter(after)).toMatchObject([{ idempotency_key, status: 'REFUSED' }])
  })
})

describe('waiting for a submit', () => {
  const waitFor = (key: string) => call(receiver, `GET /api/generations/${key}?wait=20`)

  it('answers as soon as the result is complete, with the result and its media', async () => {
    const { idempotency_key: key, request_id: id } = Object((await submit()).body)
    const started = performance.now()
    const waiting = waitFor(key)
    await eventually(() => receiver.deps.awaited.ids().includes(id))
    await deliver(receiver.webhookUrl, failed(id).body)
    const { status, json: generation } = await waiting
    expect(status).toBe(200)
    expect(generation).toMatchObject({
      state: 'submitted',
      request_id: id,
      result: { status: 'FAILED', idempotency_key: key },
      media: [],
    })
    expect(performance.now() - started).toBeLessThan(10_000)
    expect(await database.sql`select request_id from mediadock.results where idempotency_key = ${key}`).toEqual([
      { request_id: id },
    ])
  })

  it('answers as soon as the submit is refused', async () => {
    respond = tooMany
    const { idempotency_key: key } = Object((await submit()).body)
    const waiting = waitFor(key)
    respond = (_one, res) => json(res, 402, noCredits)
    await pass(10)
    expect((await waiting).json).toMatchObject({ state: 'refused', answer: noCredits, result: null, media: [] })
  })

  it('answers with the unfinished submit after the given seconds, or at once without them', async () => {
    const { idempotency_key: key } = Object((await submit()).body)
    for (const query of ['?wait=1', ''])
      expect((await call(receiver, `GET /api/generations/${key}${query}`)).json).toMatchObject({
        state: 'submitted',
        result: { landed_at: null },
      })
    expect((await call(receiver, `GET /api/generations/${key}?wait=61`)).status).toBe(400)
  })
})

describe('submitting', () => {
  it('posts with the Idempotency-Key and the webhook URL, and tracks the request', async () => {
    const answer = await submit({ metadata: { order: 9 } })
    expect(answer).toMatchObject({
      status: 202,
      body: { state: 'submitted', status: 'IN_QUEUE', cost: 4, metadata: { order: 9 } },
    })
    const { request_id: id, idempotency_key: key } = Object(answer.body)
    expect(posted).toEqual([
      {
        path: '/v1/models/aurora-image',
        key,
        authorization: `Bearer ${liveKey.api_key}`,
        body: { input: body.input, webhook_url: 'https://hooks.test/webhooks' },
      },
    ])
    const [row] = await database.sql`select * from mediadock.results where request_id = ${id}`
    expect(row).toMatchObject({
      status: 'IN_QUEUE',
      model: 'aurora-image',
      key_name: 'live',
      sandbox: false,
      metadata: { order: 9 },
    })
  })

  it('calls once and answers the same request if sent twice with one key', async () => {
    const idempotency_key = randomUUID()
    const [first, second] = [await submit({ idempotency_key }), await submit({ idempotency_key })]
    expect(Object(second.body).request_id).toBe(Object(first.body).request_id)
    expect(posted).toHaveLength(1)
    await expect(submit({ idempotency_key, input: { prompt: 'another' } })).rejects.toMatchObject({
      status: 409,
      code: 'idempotency_key_reuse',
    })
  })

  it("returns the provider's 4xx, and may be sent again with the same key", async () => {
    const envelope = { error: { type: 'billing_error', code: 'insufficient_credits', message: 'no credits' } }
    respond = (_one, res) => json(res, 402, envelope)
    const idempotency_key = randomUUID()
    expect(await submit({ idempotency_key })).toEqual({ status: 402, body: envelope })
    respond = accept
    expect(await submit({ idempotency_key })).toMatchObject({ status: 202, body: { state: 'submitted' } })
  })

  it.each<[string, Respond]>([
    ['500', (_one, res) => json(res, 500, {})],
    [
      '429',
      (_one, res) =>
        json(res, 429, { error: { type: 'x', code: 'rate_limit_exceeded', message: '' } }, { 'retry-after': '2' }),
    ],
    [
      '409 request_in_progress',
      (_one, res) => json(res, 409, { error: { type: 'x', code: 'request_in_progress', message: '' } }),
    ],
    ['a cut connection', (_one, res) => res.socket?.destroy()],
    ['nonsense', (_one, res) => res.writeHead(200).end('<html>')],
  ])('answers 202 without a request_id on %s, and tries again with the same key', async (_what, answer) => {
    respond = answer
    const pending = await submit()
    expect(pending).toMatchObject({ status: 202, body: { request_id: null, state: 'pending' } })
    const { idempotency_key: key } = Object(pending.body)
    respond = accept
    await pass(10)
    const found = await receiver.deps.submitter.find(key)
    expect(found).toMatchObject({ state: 'submitted', request_id: known.get(key) })
    expect(new Set(posted.map((one) => one.key))).toEqual(new Set([key]))
  })

  it('calls the provider again after a lost answer, and is charged once', async () => {
    respond = (one, res) => {
      accept(one, Object.assign(Object.create(res), { writeHead: () => ({ end: () => res.socket?.destroy() }) }))
    }
    const before = known.size
    const { idempotency_key: key } = Object((await submit()).body)
    respond = accept
    await pass(10)
    expect(await receiver.deps.submitter.find(key)).toMatchObject({ state: 'submitted', request_id: known.get(key) })
    expect(known.size).toBe(before + 1)
  })

  it('continues an intent left by a crash when its lease ends', async () => {
    const key = randomUUID()
    await database.sql`insert into mediadock.generations (idempotency_key, model, input, key_name, created_at, next_attempt_at, attempts)
      values (${key}, 'aurora-image', '{}', 'live', now(), now() + interval '30 seconds', 1)`
    await pass(1)
    expect(await receiver.deps.submitter.find(key)).toMatchObject({ state: 'submitted' })
  })

  it('is given up before the provider forgets the key', async () => {
    respond = (_one, res) => json(res, 500, {})
    const { idempotency_key: key } = Object((await submit()).body)
    posted = []
    respond = accept
    await pass(24 * 60)
    expect(await receiver.deps.submitter.find(key)).toMatchObject({ state: 'expired', request_id: null })
    expect(posted).toEqual([])
  })

  it('gets another day if it was refused and is sent again a day later', async () => {
    respond = (_one, res) =>
      json(res, 402, { error: { type: 'billing_error', code: 'insufficient_credits', message: '' } })
    const idempotency_key = randomUUID()
    await submit({ idempotency_key })
    receiver.setNow(new Date(Date.now() + 24 * 3_600_000))
    respond = (_one, res) =>
      json(res, 429, { error: { type: 'x', code: 'rate_limit_exceeded', message: '' } }, { 'retry-after': '999999' })
    expect(await submit({ idempotency_key })).toMatchObject({ status: 202, body: { state: 'pending' } })
    respond = accept
    // However long the provider says: it would not be called again before the key is forgotten.
    await pass(26 * 60)
    expect(await receiver.deps.submitter.find(idempotency_key)).toMatchObject({ state: 'submitted' })
  })

  it('ends as refused if the refusal cannot be stored, and is not sent again', async () => {
    respond = (_one, res) => json(res, 400, { error: { type: 'x', code: 'nul', message: 'a \0 in it' } })
    const { status, body } = await submit()
    expect({ status, body }).toMatchObject({ status: 400, body: { error: { code: 'unreadable_answer' } } })
  })

  it('is repeated unchanged while in doubt, also with another webhook URL configured', async () => {
    respond = (_one, res) => res.socket?.destroy()
    const { idempotency_key: key } = Object((await submit()).body)
    await database.sql`update mediadock.generations set webhook_url = 'https://before.test/webhooks' where idempotency_key = ${key}`
    respond = accept
    await pass(10)
    expect(posted.map((one) => Object(one.body).webhook_url)).toEqual([
      'https://hooks.test/webhooks',
      'https://before.test/webhooks',
    ])
  })

  it('is given up, not called again, if it was in doubt, then refused, and sent again a day later', async () => {
    respond = (_one, res) => res.socket?.destroy()
    const idempotency_key = randomUUID()
    await submit({ idempotency_key })
    respond = (_one, res) => json(res, 402, noCredits)
    await pass(10)
    expect(await receiver.deps.submitter.find(idempotency_key)).toMatchObject({ state: 'refused' })
    posted = []
    respond = accept
    receiver.setNow(new Date(Date.now() + 24 * 3_600_000))
    expect(await submit({ idempotency_key })).toMatchObject({ status: 202, body: { state: 'expired' } })
    expect(posted).toEqual([])
  })

  it('may be sent again without limit if it was always refused, with the present webhook URL', async () => {
    const envelope = { error: { type: 'billing_error', code: 'insufficient_credits', message: '' } }
    respond = (_one, res) => json(res, 402, envelope)
    const idempotency_key = randomUUID()
    for (let day = 0; day < 4; day += 1) {
      receiver.setNow(new Date(Date.now() + day * 24 * 3_600_000))
      await database.sql`update mediadock.generations set webhook_url = 'https://wrong.test/' where idempotency_key = ${idempotency_key}`
      expect(await submit({ idempotency_key })).toEqual({ status: 402, body: envelope })
    }
    expect(new Set(posted.map((one) => Object(one.body).webhook_url))).toEqual(new Set(['https://hooks.test/webhooks']))
  })

  it('joins a webhook that was faster than the answer, metadata included', async () => {
    respond = (one, res) => {
      const id = randomUUID()
      known.set(one.key, id)
      void deliver(receiver.webhookUrl, failed(id).body)
        .then(() =>
          eventually(
            async () =>
              (await database.sql`select from mediadock.results where request_id = ${id} and status = 'FAILED'`)
                .length > 0,
          ),
        )
        .then(() => accept(one, res))
    }
    const answer = await submit({ metadata: { order: 11 } })
    expect(answer).toMatchObject({ status: 202, body: { state: 'submitted', status: 'FAILED' } })
    const [row] =
      await database.sql`select status, metadata from mediadock.results where request_id = ${Object(answer.body).request_id}`
    expect(row).toEqual({ status: 'FAILED', metadata: { order: 11 } })
  })

  it.each([
    ['an unknown key_name', { key_name: 'nobody' }, 'unknown_key'],
    ['a NUL in the input', { input: { prompt: 'a\0b' } }, 'not_storable'],
    ['a lone surrogate in a key', { input: { '\ud800': 1 } }, 'not_storable'],
  ])('%s is refused with 422 and no call', async (_what, more, code) => {
    await expect(submit(more)).rejects.toMatchObject({ status: 422, code })
    expect(posted).toEqual([])
  })
})
