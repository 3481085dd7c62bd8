import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createPool, type Pool } from '../../../src/platform/postgres/postgres.ts'
import { postgresTime } from '../../../src/platform/postgres/time.ts'
import { deliveryId, toDelivery, type Delivery } from '../../../src/receiver/domain/delivery.ts'
import type { Keys } from '../../../src/receiver/domain/keys.ts'
import type { Report } from '../../../src/receiver/domain/report.ts'
import { requestIdOf } from '../../../src/receiver/domain/request-id.ts'
import { storedName, type Source } from '../../../src/receiver/domain/source.ts'
import { storeDeliveries } from '../../../src/receiver/intake/store.ts'
import { createHandOver } from '../../../src/receiver/landing/hand-over.ts'
import { landOne } from '../../../src/receiver/landing/land-reports.ts'
import { replayDelivery } from '../../../src/receiver/landing/replay.ts'
import { reportToLand } from '../../../src/receiver/landing/report-to-land.ts'
import { requeue } from '../../../src/receiver/landing/requeue.ts'
import type { PollingDeps } from '../../../src/receiver/reconciling/polling.ts'
import { runOnce } from '../../../src/receiver/reconciling/reconciler.ts'
import { openrouterVideo } from '../../../src/receiver/sources/openrouter-video.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { defaultSource, keysOf, liveKey, sandboxKey } from '../../support/receiver.ts'
import { failed, okAudio } from '../../support/webhooks.ts'
import { createTestWorker } from '../../support/worker.ts'
import { apiOf } from '../sources/support/calls.ts'

/* Two sources, and requests and deliveries that both could mean. The other source has the default source's bodies. */

const engine: Source = { ...defaultSource, name: 'engine' }
const base = keysOf(liveKey, sandboxKey)
const engineKey = { ...base.all[0], name: 'engine-key', source: engine, environment: 'live' }
const all = [...base.all, engineKey] as Keys['all']
const keys: Keys = {
  ...base,
  all,
  byName: new Map(all.map((key) => [key.name, key])),
  sources: new Map([[engine.name, engine]]),
}

let database: TestDatabase
let pool: Pool
beforeAll(async () => {
  database = await createTestDatabase()
  pool = createPool({ url: database.url, max: 4, keepsPlans: true })
})
afterAll(async () => {
  await pool.close()
  await database.drop()
})

function signedBy(source: Source, body: Buffer, webhookId: string = randomUUID()): Delivery {
  return toDelivery({
    source,
    id: deliveryId(webhookId, body, storedName(source)),
    webhookId,
    keyName: source === engine ? 'engine-key' : 'live',
    environment: 'live',
    timestampSeconds: Math.floor(Date.now() / 1000),
    receivedAt: new Date(),
    headers: {},
    body,
  })
}

/** Stores deliveries and lands everything that is due, as a process would that claims them. */
async function landed(deliveries: readonly Delivery[], given: Keys = keys) {
  await storeDeliveries(pool.db, deliveries)
  await work(given)
}

async function work(given: Keys = keys) {
  const { signal } = new AbortController()
  const worker = createTestWorker({ databaseUrl: database.url, keys: () => given, time: postgresTime })
  const handOver = createHandOver({
    ...worker,
    signal,
    giveWay: async () => {},
    wakeInbox: () => {},
    isPrepared: () => true,
  })
  for (let more = true; more;) ({ more } = await handOver.claimSome())
  await handOver.idle()
  return worker
}

const stateOf = async ({ id }: Delivery) => {
  const [row] = await database.sql`
    select parked_reason, flags, exists (select from mediadock.inbox where delivery_id = d.id) as pending
    from mediadock.deliveries d where id = ${id}`
  return row
}
const resultOf = async (requestId: string) => {
  const [row] = await database.sql`
    select status, source_name, external_id, key_name from mediadock.results where request_id = ${requestId}`
  return row
}

describe('whose word counts', () => {
  it.each([
    ['the default source', defaultSource, engine, 'generation-queue'],
    ['another source', engine, defaultSource, 'engine'],
  ])(
    'a request of %s keeps what that says, and the delivery of the other one is parked',
    async (_, own, other, name) => {
      const requestId = randomUUID()
      const said = signedBy(own, okAudio(requestId).body)
      const foreign = signedBy(other, failed(requestId).body)
      await landed([said])
      await landed([foreign])
      expect(await resultOf(requestId)).toMatchObject({
        status: 'COMPLETED',
        source_name: name,
        external_id: requestId,
      })
      expect(await stateOf(said)).toEqual({ parked_reason: null, flags: [], pending: false })
      const parked = { parked_reason: 'source_mismatch', flags: ['source_mismatch'], pending: false }
      expect(await stateOf(foreign)).toEqual(parked)

      // A dry run, a replay and a replay of many say the same.
      const worker = await work()
      for (const dryRun of [true, false]) {
        expect(await replayDelivery(worker, foreign.id, { dryRun })).toEqual([])
        expect(await stateOf(foreign)).toEqual(parked)
      }
      const replayId = randomUUID()
      await database.sql`insert into mediadock.replays (id, started_at, actor, filters, count) values (${replayId}, now(), 'test', '{}', 1)`
      await requeue(pool.db, { replayId, ids: [foreign.id], before: 0, now: postgresTime() })
      await work()
      expect(await stateOf(foreign)).toEqual(parked)
      expect(await resultOf(requestId)).toMatchObject({ status: 'COMPLETED', source_name: name })
    },
  )

  it('at the same instant, one of two lands', async () => {
    for (let round = 0; round < 20; round += 1) {
      const requestId = randomUUID()
      const both = [signedBy(defaultSource, okAudio(requestId).body), signedBy(engine, failed(requestId).body)]
      await storeDeliveries(pool.db, both)
      await Promise.all([work(), work()])
      const reasons = await Promise.all(both.map(async (one) => (await stateOf(one))?.['parked_reason']))
      const first = reasons[0] === null
      expect(reasons).toEqual(first ? [null, 'source_mismatch'] : ['source_mismatch', null])
      expect(await resultOf(requestId)).toMatchObject({
        status: first ? 'COMPLETED' : 'FAILED',
        source_name: first ? 'generation-queue' : 'engine',
      })
    }
  })

  it('tracking comes before the first delivery', async () => {
    const requestId = randomUUID()
    await database.sql`insert into mediadock.requests (request_id, source_name) values (${requestId}, 'engine')`
    const foreign = signedBy(defaultSource, okAudio(requestId).body)
    await landed([foreign])
    expect(await stateOf(foreign)).toMatchObject({ parked_reason: 'source_mismatch' })
    expect(await resultOf(requestId)).toMatchObject({ status: 'IN_QUEUE', source_name: 'engine' })
    const own = signedBy(engine, okAudio(requestId).body)
    await landed([own])
    expect(await resultOf(requestId)).toMatchObject({ status: 'COMPLETED', source_name: 'engine' })
  })

  it('keeps 16 deliveries of another source for a request, and deletes the others', async () => {
    const requestId = randomUUID()
    await landed([signedBy(defaultSource, okAudio(requestId).body)])
    const forged = Array.from({ length: 20 }, () => signedBy(engine, failed(requestId).body))
    for (const one of forged) await landed([one])
    const [{ count } = { count: undefined }] = await database.sql`
      select count(*)::int from mediadock.deliveries where request_id = ${requestId} and source_name = 'engine'`
    expect(count).toBe(16)
  })
})

it('one webhook id and one body of two sources are two deliveries, and neither reuses the id', async () => {
  const body = okAudio(randomUUID()).body
  const webhookId = randomUUID()
  const both = [signedBy(defaultSource, body, webhookId), signedBy(engine, body, webhookId)]
  expect(new Set(both.map(({ id }) => id)).size).toBe(2)
  await landed(both)
  const other = signedBy(engine, okAudio(randomUUID()).body, webhookId)
  await landed([other])
  expect((await stateOf(both[0] as Delivery))?.['flags']).not.toContain('id_reused')
  expect((await stateOf(both[1] as Delivery))?.['flags']).not.toContain('id_reused')
  expect((await stateOf(other))?.['flags']).toContain('id_reused')
})

it('of two bodies under one id the one that arrived later is flagged, also if it landed first', async () => {
  const webhookId = randomUUID()
  const slow = {
    ...signedBy(defaultSource, okAudio(randomUUID()).body, webhookId),
    receivedAt: new Date(Date.now() - 50),
  }
  const quick = signedBy(defaultSource, okAudio(randomUUID()).body, webhookId)
  await landed([quick])
  await landed([slow])
  expect((await stateOf(quick))?.['flags']).toEqual(['id_reused'])
  expect((await stateOf(slow))?.['flags']).toEqual([])
})

it('parks a delivery whose source was removed from the settings, and lands it once it is there again', async () => {
  const requestId = randomUUID()
  const delivery = signedBy(engine, okAudio(requestId).body)
  await landed([delivery], { ...keys, sources: new Map() })
  expect(await stateOf(delivery)).toMatchObject({ parked_reason: 'unknown_source', pending: false })
  expect(await database.sql`select detail from mediadock.attempts where delivery_id = ${delivery.id}`).toEqual([
    { detail: 'unknown_source: the source is not in SOURCES_FILE' },
  ])
  await replayDelivery(await work(), delivery.id, { dryRun: false })
  expect(await stateOf(delivery)).toMatchObject({ parked_reason: null })
  expect(await resultOf(requestId)).toMatchObject({ status: 'COMPLETED', source_name: 'engine' })
})

it('a request is polled by the id and with the keys of its own source alone', async () => {
  const asked: unknown[] = []
  const ofEngine = requestIdOf('engine', 'job-1')
  const ofFirst = randomUUID()
  await database.sql`insert into mediadock.requests (request_id, source_name, external_id, model, next_poll_at)
    values (${ofEngine.requestId}, 'engine', ${ofEngine.externalId}, 'a/b', now()), (${ofFirst}, null, null, null, now())`
  const worker = createTestWorker({
    databaseUrl: database.url,
    keys: () => keys,
    time: postgresTime,
    fetchResult: async ({ jobId, sourceName, model, keyName }) => {
      asked.push({ jobId, sourceName, model })
      return { answer: { kind: 'not_found' }, keyName }
    },
  })
  await runOnce(worker)
  expect(asked).toContainEqual({ jobId: 'job-1', sourceName: 'engine', model: 'a/b' })
  expect(asked).toContainEqual({ jobId: ofFirst, sourceName: null, model: undefined })
})

describe('the id of a request', () => {
  it('is the job’s own where that is a uuid, and otherwise UUID v5 of source and job', () => {
    const uuid = randomUUID()
    expect(requestIdOf(null, uuid)).toEqual({ requestId: uuid, externalId: null })
    expect(requestIdOf('engine', uuid)).toEqual({ requestId: uuid, externalId: null })
    const { requestId, externalId } = requestIdOf('engine', uuid.toUpperCase())
    expect(requestId).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
    expect(externalId).toBe(uuid.toUpperCase())
    expect(requestIdOf('engine', 'job')).toEqual(requestIdOf('engine', 'job'))
    expect(requestIdOf('engine', 'job').requestId).not.toBe(requestIdOf('engines', 'job').requestId)
  })
})

it('an end that lands while the poll of a hint is under way keeps the next poll, since that poll may get no answer', async () => {
  const requestId = randomUUID()
  await database.sql`insert into mediadock.requests (request_id, source_name, key_name, key_source, sandbox, next_poll_at)
    values (${requestId}, 'engine', 'engine-key', 'landed', false, now() + interval '30 s')`
  await landed([signedBy(engine, failed(requestId).body)])
  const [row] = await database.sql`
    select status, next_poll_at > now() as scheduled from mediadock.requests where request_id = ${requestId}`
  expect(row).toEqual({ status: 'FAILED', scheduled: true })
})

it.each<[string, { from: string[]; to: string[]; cost?: number; outcome: string }]>([
  ['the same link', { from: ['a'], to: ['a'], outcome: 'agreed' }],
  ['the same links', { from: ['a', 'b'], to: ['a', 'b'], outcome: 'agreed' }],
  ['another link', { from: ['a'], to: ['b'], outcome: 'landed' }],
  ['more links', { from: ['a'], to: ['a', 'b'], outcome: 'landed' }],
  ['a cost', { from: ['a'], to: ['a'], cost: 3, outcome: 'landed' }],
])('a complete result from a webhook, then %s from the provider: readers get what they lack', async (_what, one) => {
  const jobId = randomUUID()
  const landLinks = async (fetched: boolean, names: string[], cost?: number) => {
    const links = names.map((name) => `https://media.test/${name}.png`)
    const unstated = { model: undefined, error: undefined, createdAt: undefined, completedAt: undefined }
    const report: Report = {
      ...unstated,
      jobId,
      status: 'COMPLETED',
      mediaComplete: true,
      cost,
      output: { images: links.map((url) => ({ url })) },
      media: links.map((url, position) => ({ kind: 'image', position, url })),
    }
    const origin = { source_name: 'engine', reporting_key: 'engine-key', environment: 'live' } as const
    const landing = reportToLand(report, { ...origin, via: fetched ? 'poll' : 'delivery' }, undefined)
    return landOne(pool.db, landing, { now: postgresTime(), keys: () => keys })
  }
  expect(await landLinks(false, one.from)).toBe('landed')
  expect(await landLinks(true, one.to, one.cost)).toBe(one.outcome)
  const [row] = await database.sql`
    select (select count(*)::int from mediadock.changes where ${jobId}::uuid = any(request_ids)) as changes,
      (select count(*)::int from mediadock.media m where m.request_id = r.request_id) as media, cost
    from mediadock.results r where request_id = ${jobId}`
  const changes = one.outcome === 'landed' ? 2 : 1
  expect(row).toEqual({ changes, media: one.to.length, cost: one.cost === undefined ? null : String(one.cost) })
})

it('hints of another source for one request: the 16 oldest stay parked', async () => {
  const clips: Source = { ...engine, name: 'clips', kind: openrouterVideo }
  const withClips: Keys = { ...keys, sources: new Map([...keys.sources, [clips.name, clips]]) }
  const requestId = randomUUID()
  await database.sql`insert into mediadock.requests (request_id, source_name) values (${requestId}, 'engine')`
  const body = Buffer.from(JSON.stringify({ type: 'video.generation.completed', data: { id: requestId } }))
  const hints = Array.from({ length: 18 }, () => signedBy(clips, body))
  for (const hint of hints) await landed([hint], withClips)
  const states = await Promise.all(hints.map(stateOf))
  const parked = { parked_reason: 'source_mismatch', flags: ['source_mismatch'], pending: false }
  expect(states).toEqual([...Array.from({ length: 16 }, () => parked), undefined, undefined])
  const [first] = hints
  const worker = await work(withClips)
  expect(await replayDelivery(worker, first!.id, { dryRun: false })).toEqual([])
  expect(await stateOf(first!)).toEqual(parked)
})

it('a replay of a hint does not wait for a locked request for longer than a landing', async () => {
  const clips: Source = { ...engine, name: 'clips', kind: openrouterVideo }
  const withClips: Keys = { ...keys, sources: new Map([...keys.sources, [clips.name, clips]]) }
  const { requestId } = requestIdOf('clips', 'clip-locked')
  const body = Buffer.from(JSON.stringify({ type: 'video.generation.completed', data: { id: 'clip-locked' } }))
  const hint = signedBy(clips, body)
  await landed([hint], withClips)
  const worker = await work(withClips)
  await database.sql.begin(async (tx) => {
    await tx`select from mediadock.requests where request_id = ${requestId} for update`
    const replay = replayDelivery(worker, hint.id, { dryRun: false })
    await expect(replay).rejects.toMatchObject({ cause: { code: '55P03' } })
  })
  expect(await replayDelivery(worker, hint.id, { dryRun: false })).toEqual([])
})

it('webhooks of a cancelled job contradict nothing, also once a poll confirms its end; one of a failed job does', async () => {
  const clips: Source = { ...engine, name: 'clips', kind: openrouterVideo }
  const withClips: Keys = { ...keys, sources: new Map([...keys.sources, [clips.name, clips]]) }
  const { requestId } = requestIdOf('clips', 'clip-0')
  const says = (status: string) =>
    signedBy(clips, Buffer.from(JSON.stringify({ type: `video.generation.${status}`, data: { id: 'clip-0', status } })))
  const state = async () => {
    const [row] = await database.sql`
      select status, confirmed_at is not null as confirmed, (select array_agg(flags::text order by received_at)
        from mediadock.deliveries d where d.request_id = r.request_id) as flags
      from mediadock.requests r where request_id = ${requestId}`
    return row
  }
  await landed([says('cancelled')], withClips)
  await landed([says('cancelled')], withClips)
  expect(await state()).toEqual({ status: 'CANCELED', confirmed: false, flags: ['{}', '{}'] })
  await landed([says('failed')], withClips)
  const contradicted = ['{}', '{}', '{contradiction}']
  expect(await state()).toEqual({ status: 'CANCELED', confirmed: false, flags: contradicted })

  const worker = createTestWorker({
    databaseUrl: database.url,
    keys: () => withClips,
    fetchResult: async ({ jobId, keyName }) => {
      if (jobId !== 'clip-0') return { answer: { kind: 'not_found' }, keyName }
      const { api } = apiOf('https://clips.test', { status: 200, json: { id: jobId, status: 'cancelled' } })
      return { answer: await openrouterVideo.fetchResult({ jobId, model: undefined }, api), keyName }
    },
  })
  worker.setNow(new Date(Date.now() + 30 * 60_000))
  await runOnce(worker)
  expect(await state()).toEqual({ status: 'CANCELED', confirmed: true, flags: contradicted })
})

it('a source that says both ends keeps FAILED while the poll that decides dies, and is polled again', async () => {
  const clips: Source = { ...engine, name: 'clips', kind: openrouterVideo }
  const key = { ...engineKey, name: 'clips-key', source: clips } as Keys['all'][number]
  const withClips: Keys = {
    ...keys,
    all: [...keys.all, key],
    byName: new Map([...keys.byName, [key.name, key]]),
    sources: new Map([...keys.sources, [clips.name, clips]]),
  }
  const { requestId } = requestIdOf('clips', 'clip-1')
  const says = (status: string) =>
    signedBy(clips, Buffer.from(JSON.stringify({ type: `video.generation.${status}`, data: { id: 'clip-1', status } })))
  await landed([says('failed')], withClips)
  await landed([says('completed')], withClips)
  const state = async () => {
    const [row] = await database.sql`
      select status, confirmed_at is not null as confirmed, least(next_poll_at, doubt_poll_at) is not null as scheduled,
        (select count(*)::int from mediadock.media m where m.request_id = r.request_id) as media
      from mediadock.requests r where request_id = ${requestId}`
    return row
  }
  const open = { status: 'FAILED', confirmed: false, scheduled: true, media: 0 }
  expect(await state()).toEqual(open)

  let asked = 0
  const at = (minutes: number, fetchResult: PollingDeps['fetchResult']) => {
    const now = new Date(Date.now() + minutes * 60_000)
    const worker = createTestWorker({ databaseUrl: database.url, keys: () => withClips, fetchResult })
    worker.setNow(now)
    return runOnce(worker)
  }
  // The process dies between the claim of the poll and its answer: nothing of it is written.
  const dying = at(30, async ({ jobId, keyName }) => {
    if (jobId !== 'clip-1') return { answer: { kind: 'not_found' }, keyName }
    asked += 1
    return Promise.withResolvers<never>().promise
  })
  void dying
  await eventually(() => asked === 1)
  expect(await state()).toEqual(open)

  await at(120, async ({ jobId, keyName }) => {
    if (jobId !== 'clip-1') return { answer: { kind: 'not_found' }, keyName }
    asked += 1
    const json = { id: jobId, status: 'completed', urls: ['https://media.test/clip.mp4'] }
    const { api } = apiOf('https://clips.test', { status: 200, json })
    return { answer: await openrouterVideo.fetchResult({ jobId, model: undefined }, api), keyName }
  })
  expect(asked).toBe(2)
  expect(await state()).toMatchObject({ status: 'COMPLETED', confirmed: true, media: 1 })
})
