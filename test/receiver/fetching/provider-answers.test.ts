import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import https from 'node:https'
import net from 'node:net'
import type { AddressInfo } from 'node:net'
import { Registry } from 'prom-client'
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { createLogger } from '../../../src/platform/logger.ts'
import { createPool, type Pool } from '../../../src/platform/postgres/postgres.ts'
import { timeOf } from '../../../src/platform/postgres/time.ts'
import { createFetcher } from '../../../src/receiver/fetching/fetcher.ts'
import { createSourceClient } from '../../../src/receiver/fetching/source-client.ts'
import { createReceiverMetrics } from '../../../src/receiver/metrics.ts'
import type { PollingDeps } from '../../../src/receiver/reconciling/polling.ts'
import * as reconciler from '../../../src/receiver/reconciling/reconciler.ts'
import { createSubmitter } from '../../../src/receiver/submitting/submit.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { imageResult, json, startProviderStand, type ProviderStand } from '../../support/provider-stand.ts'
import { keysOf, liveKey, sandboxKey } from '../../support/receiver.ts'
import { claiming } from '../../support/worker.ts'

type Respond = Parameters<ProviderStand['answer']>[0]

const secondKey = { name: 'second', api_key: 'service_live_cccccccccccccccc', signing_secret: 'whsec_second_secret' }

let database: TestDatabase
let pool: Pool
let stand: ProviderStand
/** The receiver's clock, moved on by hand. */
let nowMs = Date.now()

beforeAll(async () => {
  database = await createTestDatabase()
  pool = createPool({ url: database.url, max: 4, keepsPlans: true })
  stand = await startProviderStand()
})
afterEach(async () => {
  stand.calls.length = 0
  nowMs = Date.now()
  await database.sql`truncate mediadock.call_budgets, mediadock.requests, mediadock.media, mediadock.generations`
})
afterAll(async () => {
  await pool.close()
  await stand.close()
  await database.drop()
})

type Options = { url?: string; keys?: object[]; limit?: number }

/** The whole way from a stuck request to the wire and back, over real sockets. */
function receiver({ url = stand.url, keys = [liveKey], limit = 1000 }: Options = {}) {
  const registry = new Registry()
  const logger = createLogger('silent')
  const clock = () => new Date(nowMs)
  const parsed = keysOf(...keys)
  const metrics = createReceiverMetrics({
    registry,
    db: pool.db,
    time: timeOf(clock),
    fetchRatePerMinute: limit,
    stuckAfterSeconds: 120,
    logger,
  })
  const client = createSourceClient({ baseUrl: url, fetch: globalThis.fetch, clock })
  const fetch = createFetcher({
    time: timeOf(clock),
    db: pool.db,
    client,
    keys: () => parsed,
    fetchRatePerMinute: limit,
    clock,
    logger,
    calls: metrics.providerCalls,
  })
  const cut = new AbortController()
  const deps: PollingDeps = {
    db: pool.db,
    keys: () => parsed,
    fetchResult: fetch,
    mediaHosts: undefined,
    stuckAfterSeconds: 120,
    clock,
    time: timeOf(clock),
    ...claiming({ clock, logger }),
    logger,
    onProcessed: () => {},
    cut: cut.signal,
  }
  const submitter = createSubmitter({
    db: pool.db,
    client,
    keys: () => parsed,
    webhookPublicUrl: 'https://hooks.test/webhooks',
    fetchRatePerMinute: limit,
    time: timeOf(clock),
    logger,
    calls: metrics.providerCalls,
    cut: cut.signal,
  })
  return {
    submitter,
    ask: (requestId: string = randomUUID(), keyName: string | undefined = 'live', pollNumber = 1) =>
      fetch({
        requestId,
        jobId: requestId,
        sourceName: null,
        model: undefined,
        keyName,
        purpose: 'completing',
        pollNumber,
        signal: cut.signal,
      }),
    reconcile: () => reconciler.runOnce(deps),
    /** The metric, as it is scraped: outcome to count, of those that there were. */
    counted: async () => {
      const lines = (await registry.metrics()).matchAll(
        /^mediadock_provider_calls_total\{operation="result",outcome="(\w+)"\} ([1-9]\d*)$/gm,
      )
      return Object.fromEntries([...lines].map(([, outcome, count]) => [outcome, Number(count)]))
    },
  }
}

async function track(row: object = {}): Promise<string> {
  const request_id = randomUUID()
  await database.sql`insert into mediadock.requests ${database.sql({ request_id, key_name: 'live', tracked_at: new Date(nowMs - 3_600_000), ...row })}`
  return request_id
}

async function rowOf(requestId: string) {
  const [row] = await database.sql`select status, landed_at, poll_outcome, poll_detail, next_poll_at,
    (select count(*)::int from mediadock.media m where m.request_id = r.request_id) as media from mediadock.requests r where request_id = ${requestId}`
  return row
}

const html: Respond = (_id, _req, res) => res.writeHead(200, { 'content-type': 'text/html' }).end('<html>')
const picture =
  (image: object): Respond =>
  (id, _req, res) =>
    json(res, 200, { ...imageResult(id), output: { images: [image] } })
const status =
  (code: number, headers: Record<string, string> = {}): Respond =>
  (_id, _req, res) =>
    json(res, code, { error: { type: 'x', code: 'x', message: 'x' } }, headers)

describe('an answer of the provider', () => {
  it.each<[string, Respond, string, string]>([
    ['200 with HTML', html, 'invalid', 'not JSON'],
    ['200 without a body', (_id, _req, res) => res.writeHead(200).end(), 'invalid', 'not JSON'],
    [
      'truncated JSON',
      (id, _req, res) => res.writeHead(200).end(JSON.stringify(imageResult(id)).slice(0, 60)),
      'invalid',
      'not JSON',
    ],
    [
      'a result of another request',
      (_id, _req, res) => json(res, 200, imageResult(randomUUID())),
      'invalid',
      'another request',
    ],
    [
      'an unknown status',
      (id, _req, res) => json(res, 200, { ...imageResult(id), status: 'DONE' }),
      'invalid',
      'schema',
    ],
    [
      'a status that is not terminal',
      (id, _req, res) => json(res, 200, { ...imageResult(id), status: 'IN_PROGRESS' }),
      'invalid',
      'schema',
    ],
    ['pictures without url', picture({ width: 1, height: 1 }), 'invalid', 'schema'],
    [
      'no picture',
      (id, _req, res) => json(res, 200, { ...imageResult(id), output: { images: [] } }),
      'invalid',
      'schema',
    ],
    [
      'more than 100 pictures',
      (id, _req, res) => json(res, 200, imageResult(id, 101)),
      'invalid',
      'output.images must have at most 100 items',
    ],
    [
      'a link without end',
      picture({ url: `https://media.test/${'x'.repeat(8192)}`, width: 1, height: 1 }),
      'invalid',
      'output.images.0.url must have at most',
    ],
    ['a NUL in a link', picture({ url: 'https://media.test/\0', width: 1, height: 1 }), 'invalid', 'Postgres'],
    ['a lone surrogate', picture({ url: 'https://media.test/\ud800', width: 1, height: 1 }), 'invalid', 'Postgres'],
    [
      'a time of the year 0',
      (id, _req, res) => json(res, 200, { ...imageResult(id), created_at: '0000-01-01T00:00:00Z' }),
      'invalid',
      'Postgres',
    ],
    [
      'a time zone 23 hours away',
      (id, _req, res) => json(res, 200, { ...imageResult(id), completed_at: '2026-01-01T00:00:00+23:00' }),
      'invalid',
      'Postgres',
    ],
    [
      '202 of another request',
      (_id, _req, res) =>
        json(res, 202, { request_id: randomUUID(), status: 'IN_QUEUE', queue_position: 0, progress: 0, logs: [] }),
      'invalid',
      'status body',
    ],
    [
      '302 to another place',
      (_id, _req, res) => res.writeHead(302, { location: `${stand.url}/v1/elsewhere` }).end(),
      'invalid',
      '302',
    ],
    [
      '307 to another host',
      (_id, _req, res) => res.writeHead(307, { location: 'http://169.254.169.254/' }).end(),
      'invalid',
      '307',
    ],
    ['400', status(400), 'invalid', '400'],
    ['409', status(409), 'invalid', '409'],
    ['500', status(500), 'unreachable', '500'],
    ['503', status(503), 'unreachable', '503'],
    ['a reset', (_id, req) => req.socket.resetAndDestroy(), 'unreachable', ''],
    [
      'an end in the middle of the body',
      (_id, _req, res) => void res.writeHead(200, { 'content-length': '100' }).write('{', () => res.destroy()),
      'unreachable',
      '',
    ],
  ])('$0: polled once, and stores only valid rows', async (_what, answer, outcome, detail) => {
    stand.answer(answer)
    const { reconcile, counted } = receiver()
    const requestId = await track()
    expect(await reconcile()).toMatchObject({ scanned: 1, failed: 1, landed: 0 })
    expect(await counted()).toEqual({ [outcome]: 1 })
    expect(stand.calls).toHaveLength(1)
    const row = await rowOf(requestId)
    expect(row).toMatchObject({ status: 'IN_QUEUE', landed_at: null, media: 0 })
    expect(row).toMatchObject({ poll_outcome: outcome, poll_detail: expect.stringContaining(detail) })
    expect(row?.['next_poll_at'].getTime()).toBeGreaterThan(nowMs)
  })

  it('of 1 GB is cut off at 4 MiB', async () => {
    const chunk = Buffer.alloc(1024 * 1024, ' ')
    let sent = 0
    stand.answer((_id, _req, res) => {
      res.writeHead(200, { 'content-type': 'application/json' })
      const more = () => {
        while (sent < 1024 && !res.destroyed) {
          sent += 1
          if (!res.write(chunk)) return void res.once('drain', more)
        }
      }
      more()
    })
    const { ask, counted } = receiver()
    expect(await ask()).toMatchObject({
      answer: { kind: 'invalid', detail: 'the answer is larger than 4194304 bytes' },
    })
    // Bytes that the kernel had buffered beyond the limit, and few more.
    expect(sent).toBeLessThan(64)
    expect(await counted()).toEqual({ invalid: 1 })
  })

  it('that arrives at a byte per second is aborted after 10 s in total', async () => {
    stand.answer((_id, _req, res) => {
      res.writeHead(200)
      const timer = setInterval(() => res.write(' '), 1000)
      res.once('close', () => clearInterval(timer))
    })
    const { ask, counted } = receiver()
    const started = performance.now()
    expect(await ask()).toMatchObject({ answer: { kind: 'unreachable', detail: 'no complete answer within 10 s' } })
    expect(performance.now() - started).toBeGreaterThan(9_900)
    expect(performance.now() - started).toBeLessThan(13_000)
    expect(await counted()).toEqual({ unreachable: 1 })
  })

  it('is fetched without following redirects', async () => {
    stand.answer((_id, _req, res) => res.writeHead(301, { location: `${stand.url}/v1/requests/elsewhere` }).end())
    await receiver().ask()
    expect(stand.calls.map(({ path }) => path)).not.toContain('/v1/requests/elsewhere')
    expect(stand.calls).toHaveLength(1)
  })

  it('with the id in capitals is the same request', async () => {
    stand.answer((id, _req, res) => json(res, 200, { ...imageResult(id), request_id: id.toUpperCase() }))
    const { reconcile } = receiver()
    const requestId = await track()
    await reconcile()
    expect(await rowOf(requestId)).toMatchObject({ status: 'COMPLETED', media: 1 })
  })
})

describe('no connection', () => {
  async function expectUnreachable(url: string, detail: RegExp): Promise<void> {
    const { ask, counted } = receiver({ url })
    const { answer } = await ask()
    expect(answer).toMatchObject({ kind: 'unreachable' })
    expect(answer.kind === 'unreachable' ? answer.detail : '').toMatch(detail)
    expect(await counted()).toEqual({ unreachable: 1 })
  }

  it('because it is refused: unreachable', async () => {
    const server = net.createServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    server.close()
    await once(server, 'close')
    await expectUnreachable(`http://127.0.0.1:${port}`, /ECONNREFUSED/)
  })

  it('because of a TLS handshake failure: unreachable', async () => {
    // A server without a certificate cannot finish any handshake.
    const server = https.createServer({}, (_req, res) => res.end()).listen(0, '127.0.0.1')
    server.on('tlsClientError', () => {})
    await once(server, 'listening')
    onTestFinished(() => void server.close())
    const { port } = server.address() as AddressInfo
    await expectUnreachable(`https://127.0.0.1:${port}`, /SSL|handshake/i)
  })

  it('because it does not speak TLS: unreachable', () =>
    expectUnreachable(stand.url.replace('http:', 'https:'), /SSL|TLS/i))

  it('because it does not speak HTTP: unreachable', async () => {
    const server = net
      .createServer((socket) => socket.on('error', () => {}).end('220 mail.test ESMTP\r\n'))
      .listen(0, '127.0.0.1')
    await once(server, 'listening')
    onTestFinished(() => void server.close())
    const { port } = server.address() as AddressInfo
    await expectUnreachable(`http://127.0.0.1:${port}`, /./)
  })
})

describe('a key that is refused', () => {
  it.each([401, 403])('with %i rests, and no request is FAILED for it', async (code) => {
    stand.answer(status(code))
    const { reconcile, counted } = receiver()
    const ids = [await track(), await track()]
    expect(await reconcile()).toMatchObject({ postponed: 2, landed: 0 })
    for (const id of ids) expect(await rowOf(id)).toMatchObject({ status: 'IN_QUEUE', landed_at: null })
    const called = stand.calls.length
    nowMs += 4000
    await reconcile()
    expect(stand.calls).toHaveLength(called)
    expect(await counted()).toMatchObject({ unauthorized: called })

    stand.answer((id, _req, res) => json(res, 200, imageResult(id)))
    nowMs += 2000
    // The first call finds out that it is accepted again, and the other may have come too early for that.
    const runs = [await reconcile(), await reconcile()]
    expect(runs.reduce((sum, { landed }) => sum + landed, 0)).toBe(2)
  })

  it('delays no other request, however many wait behind it', async () => {
    stand.answer((id, req, res) =>
      req.headers.authorization?.includes('_test_') ? json(res, 200, imageResult(id)) : json(res, 401, {}),
    )
    for (let n = 0; n < 40; n += 1) await track({ tracked_at: new Date(nowMs - 7_200_000) })
    const other = await track({ key_name: 'sandbox' })
    const { reconcile } = receiver({ keys: [liveKey, sandboxKey] })
    expect(await reconcile()).toMatchObject({ landed: 1 })
    expect(await rowOf(other)).toMatchObject({ status: 'COMPLETED' })
    // The next run too, although all of theirs are older.
    const another = await track({ key_name: 'sandbox' })
    nowMs += 30_000
    await reconcile()
    expect(await rowOf(another)).toMatchObject({ status: 'COMPLETED' })
  })

  it("is not outweighed by another key's 404: the request is not lost", async () => {
    stand.answer((_id, req, res) => json(res, req.headers.authorization?.includes('cccc') ? 404 : 401, {}))
    const { reconcile } = receiver({ keys: [liveKey, secondKey] })
    const requestId = await track({ tracked_at: new Date(nowMs - 48 * 3_600_000) })
    expect(await reconcile()).toMatchObject({ postponed: 1, notFound: 0 })
    expect(await rowOf(requestId)).toMatchObject({ poll_outcome: 'postponed', poll_detail: 'unauthorized' })
    stand.answer((id, _req, res) => json(res, 200, imageResult(id)))
    nowMs += 301_000
    expect(await reconcile()).toMatchObject({ landed: 1 })
  })

  it('is replaced by another key of the account', async () => {
    stand.answer((id, req, res) =>
      req.headers.authorization?.includes('cccc') ? json(res, 200, imageResult(id)) : json(res, 401, {}),
    )
    const { ask, counted } = receiver({ keys: [liveKey, secondKey, sandboxKey] })
    expect(await ask()).toMatchObject({ answer: { kind: 'result' }, keyName: 'second' })
    expect(await counted()).toEqual({ unauthorized: 1, result: 1 })
  })
})

describe('a key whose calls are spent', () => {
  it('is replaced by a key that is known to belong to its account, and by no other', async () => {
    const refused = new Set<string>([liveKey.api_key])
    stand.answer((id, req, res) =>
      [...refused].some((key) => req.headers.authorization === `Bearer ${key}`)
        ? json(res, 401, {})
        : json(res, 200, imageResult(id)),
    )
    const third = { name: 'third', api_key: 'service_live_dddddddddddddddd', signing_secret: 'whsec_third_secret' }
    const { ask } = receiver({ keys: [liveKey, secondKey, third], limit: 10 })
    // While the key was refused it turned out who knows its requests.
    expect(await ask()).toMatchObject({ keyName: 'second' })
    refused.clear()
    nowMs += 120_000
    const by: (string | undefined)[] = []
    for (let n = 0; n < 16; n += 1) {
      const { answer, keyName } = await ask()
      by.push(answer.kind === 'result' ? keyName : answer.kind)
    }
    expect(by).toEqual([...Array(6).fill('live'), ...Array(6).fill('second'), ...Array(4).fill('no_call')])
  })

  it('of a sandbox uses at most a tenth of the calls of a live key', async () => {
    stand.answer((id, req, res) =>
      req.headers.authorization === `Bearer ${liveKey.api_key}`
        ? json(res, 200, imageResult(id))
        : status(404)(id, req, res),
    )
    const { ask } = receiver({ keys: [liveKey, sandboxKey], limit: 20 })
    // Its secret signed the ids of live requests, which the live key knows.
    for (let n = 0; n < 60; n += 1) await ask(randomUUID(), 'sandbox', 1)
    const calls = stand.calls.filter(({ authorization }) => authorization === `Bearer ${liveKey.api_key}`)
    expect(calls).toHaveLength(2)
  })
})

it('a request of a known environment without a key there is postponed, and no other key is tried', async () => {
  const requestId = await track({ key_name: null, sandbox: true })
  await receiver({ keys: [liveKey] }).reconcile()
  expect(await rowOf(requestId)).toMatchObject({ poll_outcome: 'postponed', poll_detail: 'no_key' })
  expect(stand.calls).toEqual([])
})

describe('404', () => {
  const many = Array.from({ length: 7 }, (_, at) => ({
    name: `k${at}`,
    api_key: `service_live_${at}`,
    signing_secret: `whsec_secret_of_k${at}`,
  }))

  it('is confirmed with the other keys of that environment, then with those of the other one', async () => {
    stand.answer(status(404))
    const { ask, counted } = receiver({ keys: [sandboxKey, secondKey, liveKey] })
    expect(await ask()).toMatchObject({ answer: { kind: 'not_found' } })
    expect(stand.calls.map(({ authorization }) => authorization)).toEqual(
      [liveKey, secondKey, sandboxKey].map((key) => `Bearer ${key.api_key}`),
    )
    expect(await counted()).toEqual({ not_found: 3 })
  })

  it('is checked with three other keys at a time, until all were asked', async () => {
    stand.answer(status(404))
    const { ask } = receiver({ keys: [liveKey, ...many] })
    for (const pollNumber of [1, 2, 3]) {
      expect(await ask(randomUUID(), 'live', pollNumber)).toMatchObject({ answer: { kind: 'not_found' } })
      expect(stand.calls).toHaveLength(4 * pollNumber)
    }
    expect(new Set(stand.calls.map(({ authorization }) => authorization)).size).toBe(8)
  })

  it('for a retired key never hides behind keys of the other environment: each poll tries one of its own', async () => {
    stand.answer((id, _req, res) => json(res, 200, imageResult(id)))
    const sandboxKeys = many.map((key) => ({ ...key, api_key: key.api_key.replace('live', 'sandbox') }))
    const { ask } = receiver({ keys: [{ ...liveKey, retired: true }, ...sandboxKeys, secondKey] })
    for (const pollNumber of [1, 2, 3])
      expect(await ask(randomUUID(), 'live', pollNumber)).toMatchObject({ keyName: 'second' })
  })

  it('ends the polls of an old request only if all keys gave it', async () => {
    stand.answer(status(404))
    const requestId = await track({ key_name: null, tracked_at: new Date(nowMs - 90_000_000) })
    await receiver({ keys: many, limit: 20 }).reconcile()
    expect(await rowOf(requestId)).toMatchObject({ poll_outcome: 'lost' })
    expect(new Set(stand.calls.map(({ authorization }) => authorization)).size).toBe(7)
  })

  it('costs other keys at most a tenth of their calls; without those, it stays unknown', async () => {
    stand.answer(status(404))
    const { ask } = receiver({ keys: [liveKey, secondKey], limit: 20 })
    const kinds = []
    for (let n = 0; n < 4; n += 1) kinds.push((await ask()).answer.kind)
    expect(kinds).toEqual(['not_found', 'not_found', 'not_found_yet', 'not_found_yet'])
  })

  it('for a retired key comes from the key that last knew one of its requests, until that answers 404', async () => {
    const retired = {
      name: 'old',
      signing_secret: 'whsec_old_secret',
      retired: true,
      api_key: liveKey.api_key.replace(/.{4}$/, 'zzzz'),
    }
    stand.answer((id, _req, res) => json(res, 200, imageResult(id)))
    const { ask } = receiver({ keys: [retired, secondKey], limit: 10 })
    // Only the first of them is a try, of which there is one a minute.
    for (let n = 0; n < 3; n += 1)
      expect(await ask(randomUUID(), 'old')).toMatchObject({ answer: { kind: 'result' }, keyName: 'second' })
    stand.answer(status(404))
    expect(await ask(randomUUID(), 'old')).toMatchObject({ answer: { kind: 'not_found' } })
    expect(await ask(randomUUID(), 'old')).toMatchObject({ answer: { kind: 'no_call', reason: 'quota' } })
  })

  it('for a retired key of unknown environment costs another key at most a tenth of its calls', async () => {
    const retired = { name: 'old', signing_secret: 'whsec_old_secret', retired: true }
    stand.answer((id, _req, res) => json(res, 200, imageResult(id)))
    const { ask } = receiver({ keys: [retired, secondKey], limit: 20 })
    const kinds = []
    for (let n = 0; n < 4; n += 1) kinds.push((await ask(randomUUID(), 'old')).answer.kind)
    expect(kinds).toEqual(['result', 'result', 'no_call', 'no_call'])
  })

  it('is shown as lost after 24 h, never as FAILED', async () => {
    stand.answer(status(404))
    const { reconcile } = receiver()
    const requestId = await track()
    await reconcile()
    expect(await rowOf(requestId)).toMatchObject({ status: 'IN_QUEUE', poll_outcome: 'not_found' })
    nowMs += 86_400_000
    await reconcile()
    expect(await rowOf(requestId)).toMatchObject({ status: 'IN_QUEUE', poll_outcome: 'lost', landed_at: null })
    stand.calls.length = 0
    nowMs += 10 * 86_400_000
    await reconcile()
    expect(stand.calls).toEqual([])
  })
})

it.each([
  ['4', 4],
  ['3600', 15],
])('a 503 with Retry-After of %s s rests the key for %d s', async (retryAfter, seconds) => {
  stand.answer(status(503, { 'retry-after': retryAfter }))
  const { ask } = receiver()
  expect(await ask()).toMatchObject({ answer: { kind: 'unreachable' } })
  stand.answer((id, _req, res) => json(res, 200, imageResult(id)))
  nowMs += seconds * 1000 - 1
  expect(await ask()).toMatchObject({ answer: { kind: 'no_call', reason: 'provider_down' } })
  nowMs += 1
  expect(await ask()).toMatchObject({ answer: { kind: 'result' } })
})

describe('429', () => {
  const inSeconds = (seconds: number) => new Date(nowMs + seconds * 1000).toUTCString()

  it.each<[string, () => Record<string, string>, number]>([
    ['without Retry-After rests 30 s', () => ({}), 30],
    ['with Retry-After in seconds obeys it', () => ({ 'retry-after': '77' }), 77],
    ['with Retry-After as a date obeys it', () => ({ 'retry-after': inSeconds(120) }), 120],
    ['with a date gone by rests a second', () => ({ 'retry-after': inSeconds(-500) }), 1],
    ['with RateLimit-Reset alone obeys that', () => ({ 'ratelimit-remaining': '0', 'ratelimit-reset': '44' }), 44],
    ['with nonsense rests 30 s', () => ({ 'retry-after': 'soon' }), 30],
    ['that asks for a week rests an hour', () => ({ 'retry-after': '604800' }), 3600],
  ])('%s', async (_what, headers, seconds) => {
    nowMs = Math.floor(nowMs / 1000) * 1000
    stand.answer(status(429, headers()))
    const { ask, counted } = receiver()
    expect(await ask()).toMatchObject({ answer: { kind: 'rate_limited' } })
    stand.answer((id, _req, res) => json(res, 200, imageResult(id)))
    nowMs += seconds * 1000 - 1
    expect(await ask()).toMatchObject({
      answer: { kind: 'no_call', reason: 'rate_limited' },
    })
    nowMs += 1
    expect(await ask()).toMatchObject({ answer: { kind: 'result' } })
    expect(await counted()).toEqual({ rate_limited: 1, not_asked_rate_limited: 1, result: 1 })
  })

  it('counts Retry-After from the answer, regardless of its duration', async () => {
    stand.answer((_id, _req, res) => {
      nowMs += 9000
      json(res, 429, {}, { 'retry-after': '10' })
    })
    const { ask } = receiver()
    await ask()
    nowMs += 9999
    expect(await ask()).toMatchObject({ answer: { kind: 'no_call' } })
  })

  it('of one key does not affect others', async () => {
    stand.answer((id, req, res) =>
      req.headers.authorization?.includes('cccc') ? json(res, 200, imageResult(id)) : json(res, 429, {}),
    )
    const { ask } = receiver({ keys: [liveKey, secondKey] })
    await ask()
    expect(await ask(randomUUID(), 'second')).toMatchObject({ answer: { kind: 'result' }, keyName: 'second' })
  })

  it("does not happen if a submit's answer shows that the window is spent", async () => {
    const ids = {
      request_id: randomUUID(),
      status_url: 'http://x.test/',
      response_url: 'http://x.test/',
      cancel_url: 'http://x.test/',
    }
    stand.answer((_id, _req, res) =>
      json(
        res,
        200,
        { ...ids, status: 'IN_QUEUE', queue_position: 0, cost: 1 },
        { 'ratelimit-remaining': '0', 'ratelimit-reset': '20' },
      ),
    )
    const { submitter, ask } = receiver()
    expect(await submitter.submit({ model: 'aurora-image', input: {}, idempotency_key: randomUUID() })).toMatchObject({
      status: 202,
      body: { state: 'submitted' },
    })
    expect(await ask()).toMatchObject({ answer: { kind: 'no_call', reason: 'rate_limit_spent' } })
    expect(await submitter.submit({ model: 'aurora-image', input: {}, idempotency_key: randomUUID() })).toMatchObject({
      status: 202,
      body: { state: 'pending', last_error: 'not called: rate_limit_spent' },
    })
    expect(stand.calls).toHaveLength(1)
  })

  it("does not happen if a result's answer shows that the window is spent", async () => {
    stand.answer((id, _req, res) =>
      json(res, 200, imageResult(id), { 'ratelimit-remaining': '0', 'ratelimit-reset': '20' }),
    )
    const { ask } = receiver()
    expect(await ask()).toMatchObject({ answer: { kind: 'result' } })
    expect(await ask()).toMatchObject({ answer: { kind: 'no_call', reason: 'rate_limit_spent' } })
  })
})
