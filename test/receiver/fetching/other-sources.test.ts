import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { Counter, Registry } from 'prom-client'
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest'
import { createLogger } from '../../../src/platform/logger.ts'
import { createPool, type Pool } from '../../../src/platform/postgres/postgres.ts'
import { timeOf } from '../../../src/platform/postgres/time.ts'
import { requestIdOf } from '../../../src/receiver/domain/request-id.ts'
import { createFetcher } from '../../../src/receiver/fetching/fetcher.ts'
import { createSourceClient } from '../../../src/receiver/fetching/source-client.ts'
import { readFailingSources } from '../../../src/receiver/queries/trouble.ts'
import { withSources } from '../../../src/receiver/sources/keys.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { imageResult, json, startProviderStand, type ProviderStand } from '../../support/provider-stand.ts'
import { keysOf, liveKey } from '../../support/receiver.ts'

/* The health of one source's keys and of its API is nobody else's. */

const [job, model] = ['models/veo/operations/job', 'veo']
const signing_secret = `whsec_${Buffer.alloc(32, 1).toString('base64')}`

let database: TestDatabase
let pool: Pool
let stand: ProviderStand
let closedUrl: string

beforeAll(async () => {
  database = await createTestDatabase()
  pool = createPool({ url: database.url, max: 4, keepsPlans: true })
  stand = await startProviderStand()
  const closed = http.createServer().listen(0, '127.0.0.1')
  await once(closed, 'listening')
  closedUrl = `http://127.0.0.1:${(closed.address() as AddressInfo).port}`
  closed.close()
  await once(closed, 'close')
})
afterEach(async () => {
  stand.calls.length = 0
  await database.sql`truncate mediadock.call_budgets`
})
afterAll(async () => {
  await pool.close()
  await stand.close()
  await database.drop()
})

type Kind = 'luma' | 'openrouter-video' | 'gemini'
const sourceOf = (name: string, kind: Kind, api_url = stand.url, keyNames = [`${name}-key`]) => ({
  name,
  kind,
  api_url,
  keys: keyNames.map((key, at) => ({
    name: key,
    api_key: key,
    ...(kind !== 'luma' && { signing_secret: at === 0 ? signing_secret : `${signing_secret.slice(0, -4)}AAE=` }),
  })),
})

/** Polls of the default source and of these, over real sockets. */
function receiver(...sources: object[]) {
  const now = new Date()
  const keys = withSources(keysOf(liveKey), JSON.stringify(sources))
  const calls = new Counter({
    name: 'calls',
    help: 'calls',
    labelNames: ['operation', 'outcome', 'source_name'],
    registers: [new Registry()],
  })
  const fetch = createFetcher({
    db: pool.db,
    client: createSourceClient({ baseUrl: stand.url, fetch: globalThis.fetch, clock: () => now }),
    keys: () => keys,
    fetchRatePerMinute: 1000,
    clock: () => now,
    time: timeOf(() => now),
    logger: createLogger('silent'),
    calls,
  })
  const ask = async (sourceName: string | null, keyName = sourceName === null ? 'live' : `${sourceName}-key`) => {
    const { requestId } = requestIdOf(sourceName ?? 'first', job)
    const jobId = sourceName === null ? requestId : job
    const { signal } = new AbortController()
    const { answer } = await fetch({ requestId, jobId, sourceName, model, keyName, purpose: 'completing', signal })
    return answer
  }
  const counted = async () =>
    (await calls.get()).values.map(({ labels, value }) => [labels['source_name'], labels['outcome'], value])
  return { now, keys, ask, counted }
}

const answerOf: Record<Kind, object> = {
  luma: { id: job, state: 'dreaming' },
  'openrouter-video': { id: job, status: 'in_progress' },
  gemini: { name: job, done: false },
}

it.each<Kind>(['luma', 'openrouter-video', 'gemini'])(
  'a 429 of %s rests the key for Retry-After, and neither the other key of the source nor another source',
  async (kind) => {
    const mine = sourceOf('mine', kind, `${stand.url}/mine`, ['mine-key', 'mine-second'])
    const { now, ask, counted } = receiver(mine, sourceOf('others', kind, `${stand.url}/others`))
    stand.answer((id, req, res) => {
      const key = req.headers['x-goog-api-key'] ?? req.headers.authorization?.replace('Bearer ', '')
      if (key === 'mine-key') return json(res, 429, {}, { 'retry-after': '90' })
      return json(res, 200, key === liveKey.api_key ? imageResult(id) : answerOf[kind])
    })
    expect(await ask('mine')).toEqual({ kind: 'rate_limited', retryAfterSeconds: 90 })
    const budgets = await database.sql`
      select key_name, blocked_reason, refusals, failing_since,
        round(extract(epoch from blocked_until - ${now}::timestamptz))::int as seconds from mediadock.call_budgets`
    const rests = { blocked_reason: 'rate_limited', seconds: 90 }
    expect([...budgets]).toEqual([{ key_name: 'mine-key', ...rests, refusals: 0, failing_since: null }])

    const before = stand.calls.length
    // The key itself is not called. The other key of the account may not be the job's, so it is no stand-in.
    expect(await ask('mine')).toEqual({ kind: 'no_call', reason: 'rate_limited' })
    expect(stand.calls).toHaveLength(before)
    expect(await ask('mine', 'mine-second')).toMatchObject({ kind: 'running' })
    expect(await ask('others')).toMatchObject({ kind: 'running' })
    expect(await ask(null)).toMatchObject({ kind: 'result' })
    expect(await counted()).toEqual([
      ['mine', 'rate_limited', 1],
      ['mine', 'not_asked_rate_limited', 1],
      ['mine', 'running', 1],
      ['others', 'running', 1],
      [undefined, 'result', 1],
    ])
  },
)

it('a source that does not answer is not called for a while, and the others are', async () => {
  const { ask, counted } = receiver(sourceOf('away', 'luma', closedUrl), sourceOf('there', 'luma'))
  stand.answer((id, req, res) => json(res, 200, req.url?.startsWith('/v1/') === true ? imageResult(id) : answerOf.luma))
  // All keys have a budget that an outage could mark.
  for (const name of ['there', null]) await ask(name)
  for (let at = 0; at < 8; at += 1) expect(await ask('away')).toMatchObject({ kind: 'unreachable' })
  expect(await ask('away')).toEqual({ kind: 'no_call', reason: 'provider_down' })
  expect(await ask('there')).toMatchObject({ kind: 'running' })
  expect(await ask(null)).toMatchObject({ kind: 'result' })
  expect(await counted()).toContainEqual(['away', 'not_asked_provider_down', 1])
  const failing = await database.sql`select key_name from mediadock.call_budgets where failing_since is not null`
  expect([...failing]).toEqual([{ key_name: 'away-key' }])
})

it('the calls of one source alone say whether it fails, however busy another one is', async () => {
  const { keys, now } = receiver(sourceOf('pictures', 'luma'), sourceOf('clips', 'luma'))
  const polled = (keyName: string, outcome: string, secondsAgo: number) =>
    database.sql`insert into mediadock.polls (request_id, polled_at, key_name, outcome, detail)
      values (gen_random_uuid(), ${new Date(now.getTime() - secondsAgo * 1000)}, ${keyName}, ${outcome}, ${outcome})`
  const failing = () => readFailingSources(pool.db, { keys, now })
  await polled('pictures-key', 'result', 100)
  for (const seconds of [90, 60, 30]) {
    await polled('pictures-key', 'unreachable', seconds)
    await polled('live', 'result', seconds - 1)
    await polled('clips-key', 'running', seconds - 1)
  }
  const since = (secondsAgo: number) => new Date(now.getTime() - secondsAgo * 1000).toISOString()
  const pictures = { source_name: 'pictures', failing_since: since(90), failed: 3, detail: 'unreachable' }
  expect(await failing()).toEqual([pictures])

  for (const seconds of [20, 15, 10]) await polled('live', 'invalid', seconds)
  // An outage that a key noted before the polls that are kept.
  await database.sql`insert into mediadock.call_budgets (key_name, slots, slots_until, granted, failing_since)
    values ('live', array[1], 0, true, ${new Date(now.getTime() - 3_600_000)})`
  const first = { source_name: 'generation-queue', failing_since: since(3600), failed: 3, detail: 'invalid' }
  expect(await failing()).toEqual([first, pictures])

  await polled('pictures-key', 'not_found', 5)
  expect(await failing()).toEqual([first])
})
