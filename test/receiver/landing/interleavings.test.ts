import { randomUUID } from 'node:crypto'
import { setImmediate as turn } from 'node:timers/promises'
import { sql } from 'drizzle-orm'
import { Counter } from 'prom-client'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createLogger } from '../../../src/platform/logger.ts'
import { createPool, type Database, type Pool } from '../../../src/platform/postgres/postgres.ts'
import { postgresTime, timeOf } from '../../../src/platform/postgres/time.ts'
import { trackRequest } from '../../../src/receiver/api/track.ts'
import { deliveryId, deliveryIdRange, parseBody, toDelivery } from '../../../src/receiver/domain/delivery.ts'
import type { Environment } from '../../../src/receiver/domain/environment.ts'
import { createFetcher, type Fetcher } from '../../../src/receiver/fetching/fetcher.ts'
import { createSourceClient } from '../../../src/receiver/fetching/source-client.ts'
import { storeDeliveries } from '../../../src/receiver/intake/store.ts'
import { landOne } from '../../../src/receiver/landing/land-reports.ts'
import { type ReportToLand, reportToLand } from '../../../src/receiver/landing/report-to-land.ts'
import type { PollingDeps } from '../../../src/receiver/reconciling/polling.ts'
import { reconcileOne } from '../../../src/receiver/reconciling/reconciler.ts'
import * as intents from '../../../src/receiver/submitting/generations.ts'
import { long } from '../../chaos/length.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { imageResult } from '../../support/provider-stand.ts'
import { keysOf, liveKey, sandboxKey } from '../../support/receiver.ts'
import { reportOf } from '../../support/report.ts'
import { failed, okAudio, okImage, okVideo, type Sample } from '../../support/webhooks.ts'
import { claiming } from '../../support/worker.ts'

/*
 * Two things happen to one request. Every pair is tried in each order, with one
 * waiting in Postgres for the other, with the other dying, and many times at
 * the same instant. docs/orders.md is the table of the ends.
 */

const keys = keysOf(liveKey, sandboxKey)
const rounds = long ? 1000 : 10
const batchRounds = long ? 100 : 10
const abreast = 5

let database: TestDatabase
let pool: Pool
let single: Pool
const notices = new Map<string, string[]>()
let flushed = 0

beforeAll(async () => {
  database = await createTestDatabase()
  pool = createPool({ url: database.url, max: 2 * abreast, keepsPlans: true })
  single = createPool({ url: database.url, max: 1, keepsPlans: true })
  await database.sql.listen('mediadock_results', (payload) => {
    const notified = JSON.parse(payload)
    if (typeof notified.flushed === 'number') flushed = notified.flushed
    else
      notices.set(notified.request_id, [
        ...(notices.get(notified.request_id) ?? []),
        `${notified.status} ${notified.media_complete}`,
      ])
  })
})
afterAll(async () => {
  await Promise.all([pool.close(), single.close()])
  await database.drop()
})

/** One of the two: does its work on the connection that it is given. */
type Act = (db: Database) => Promise<unknown>

type Round = { requestId: string; acts: readonly [Act, Act] }

type Ended = {
  status: string
  landed_at: string | null
  confirmed: boolean
  sandbox: boolean | null
  key_name: string | null
  metadata: unknown
  polled_next: boolean
  media: number
  /** Of the deliveries, in the order of the acts. */
  flags: string[][]
  parked: (string | null)[]
  pending: number
  notified: string[]
}

/** `signedBy`: the environment of a key that is configured no longer. `result` is what the provider answered when the worker polled it. */
type Webhook = { sample: Sample; webhookId?: string; keyName?: string; signedBy?: Environment; result?: object }

/** Stores a delivery as the listener would, and answers what its worker would then do. */
/** Two that arrive in one millisecond would have no order. */
let lastReceived = 0

async function webhook({
  sample,
  webhookId = randomUUID(),
  keyName = 'live',
  signedBy,
  result,
}: Webhook): Promise<Act> {
  lastReceived = Math.max(Date.now(), lastReceived + 1)
  const now = new Date(lastReceived)
  const id = deliveryId(webhookId, sample.body)
  const environment = signedBy ?? keys.byName.get(keyName)?.environment
  const delivery = toDelivery({
    source: keys.defaultSource,
    id,
    webhookId,
    keyName,
    environment,
    timestampSeconds: Math.floor(now.getTime() / 1000),
    receivedAt: now,
    headers: {},
    body: sample.body,
  })
  await storeDeliveries(pool.db, [delivery])
  const parsed = parseBody(keys.defaultSource, sample.body)
  if (parsed.kind !== 'report') throw new Error('the sample is no notification')
  const { first, last } = deliveryIdRange(webhookId)
  const origin = {
    via: result === undefined ? ('delivery' as const) : ('poll' as const),
    source_name: null,
    reporting_key: keyName,
    environment,
    delivery_id: id,
    claims: 0,
    webhook_first_id: first,
    webhook_last_id: last,
  }
  const report = result ? reportOf(result) : parsed.report
  const landing = reportToLand(report, origin, undefined)
  return (db) => land(db, landing)
}

function land(db: Database, landing: ReportToLand): Promise<unknown> {
  // On a slow machine the other transaction may take longer than a landing would wait.
  return landOne(db, landing, { now: postgresTime(), keys: () => keys, waitMs: 30_000 })
}

/** The reconciler, stopped with the provider's answer in its hand. */
async function reconciler(requestId: string, answer: object): Promise<Act> {
  const go = Promise.withResolvers<Database>()
  const fetched = Promise.withResolvers<void>()
  const logger = createLogger('silent')
  const clock = () => new Date()
  const client = createSourceClient({
    baseUrl: 'http://provider.test',
    clock,
    fetch: async () => Response.json(answer),
  })
  const calls = new Counter({ name: 'unread', help: 'unread', labelNames: ['operation', 'outcome'], registers: [] })
  const ask = createFetcher({
    time: timeOf(clock),
    db: pool.db,
    client,
    keys: () => keys,
    fetchRatePerMinute: 1_000_000,
    clock,
    logger,
    calls,
  })
  const stalled: Fetcher = async (lookup) => {
    const answered = await ask(lookup)
    fetched.resolve()
    deps.db = await go.promise
    return answered
  }
  const deps: PollingDeps = {
    db: pool.db,
    keys: () => keys,
    fetchResult: stalled,
    mediaHosts: undefined,
    stuckAfterSeconds: 1,
    clock,
    time: timeOf(clock),
    ...claiming({ clock, logger }),
    logger,
    onProcessed: () => {},
    cut: new AbortController().signal,
  }
  const round = reconcileOne(deps, requestId)
  await Promise.race([fetched.promise, round])
  return (db) => {
    go.resolve(db)
    return round
  }
}

async function track(requestId: string, row: object = {}): Promise<void> {
  await database.sql`insert into mediadock.requests ${database.sql({ request_id: requestId, key_name: 'live', ...row })}`
}

/** As docs/results.md has it. */
async function insertTracked(db: Database, requestId: string): Promise<void> {
  await db.execute(
    sql`insert into mediadock.requests (request_id, key_name, metadata) values (${requestId}, 'live', '{"order": 6}') on conflict do nothing`,
  )
}

async function endsOf(requestIds: readonly string[]): Promise<Ended[]> {
  const rows = await database.sql<(Omit<Ended, 'notified'> & { request_id: string })[]>`
    select request_id, status, landed_at, confirmed_at is not null as confirmed, coalesce(sandbox, signed_sandbox) as sandbox, key_name, metadata, least(next_poll_at, doubt_poll_at) <= now() as polled_next,
      (select count(*)::int from mediadock.media m where m.request_id = r.request_id) as media,
      (select count(*)::int from mediadock.inbox i join mediadock.deliveries d on d.id = i.delivery_id where d.request_id = r.request_id) as pending,
      (select coalesce(jsonb_agg(flags order by received_at, key_name), '[]') from mediadock.deliveries d where d.request_id = r.request_id) as flags,
      (select coalesce(jsonb_agg(parked_reason order by received_at, key_name), '[]') from mediadock.deliveries d where d.request_id = r.request_id) as parked
    from mediadock.requests r where request_id = any(${[...requestIds]}::uuid[])`
  const byId = new Map(rows.map((row) => [row.request_id, row]))
  return requestIds.map((id) => ({ ...byId.get(id)!, notified: notices.get(id) ?? [] }))
}

async function flushNotices(): Promise<void> {
  const mark = Date.now()
  await database.sql`select pg_notify('mediadock_results', ${JSON.stringify({ flushed: mark })})`
  while (flushed < mark) await turn()
}

/** The first runs completely in an open transaction. The second starts, waits in Postgres, and continues when the first ends. */
async function secondWaits(first: Act, second: Act, end: 'commit' | 'rollback'): Promise<void> {
  await single.db.execute(sql`begin`)
  await first(single.db)
  const waiting = second(pool.db)
  let over = false
  void waiting.finally(() => (over = true))
  await eventually(
    async () =>
      over ||
      (await database.sql`select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`)
        .length > 0,
  )
  await single.db.execute(sql.raw(end))
  await waiting
}

/** Small tables: what is tried here is order, not size. */
async function forget(): Promise<void> {
  notices.clear()
  await database.sql`truncate mediadock.requests, mediadock.media, mediadock.deliveries, mediadock.inbox, mediadock.attempts, mediadock.generations`
}

type Pair = { make: (round: number) => Promise<Round>; end: (ended: Ended, round: number) => void }

function tried(name: string, { make, end }: Pair): void {
  describe(name, () => {
    const check = async (requestId: string, round: number) => {
      await flushNotices()
      const [one] = await endsOf([requestId])
      end(one!, round)
    }

    it.each([
      ['one after the other', 0],
      ['the other way round', 1],
    ])('%s', async (_order, first) => {
      for (let round = 0; round < 4; round += 1) {
        const { requestId, acts } = await make(round)
        await acts[first === 0 ? 0 : 1](pool.db)
        await acts[first === 0 ? 1 : 0](pool.db)
        await check(requestId, round)
      }
    })

    it.each([
      ['the second waits for the first', 0],
      ['the first waits for the second', 1],
    ])('%s, in Postgres', async (_order, first) => {
      for (let round = 0; round < 4; round += 1) {
        const { requestId, acts } = await make(round)
        await secondWaits(acts[first === 0 ? 0 : 1], acts[first === 0 ? 1 : 0], 'commit')
        await check(requestId, round)
      }
    })

    it(`${rounds} times at the same instant`, async () => {
      for (let done = 0; done < rounds; done += batchRounds) {
        const made = await Promise.all(Array.from({ length: batchRounds }, (_, at) => make(done + at)))
        for (let at = 0; at < made.length; at += abreast) {
          await Promise.all(made.slice(at, at + abreast).map(({ acts }) => atOnce(acts)))
        }
        await flushNotices()
        const ends = await endsOf(made.map(({ requestId }) => requestId))
        ends.forEach((one, at) => end(one, done + at))
        await forget()
      }
    })
  })
}

/** Both behind one barrier; the one or the other a little later, so that every order comes up. */
async function atOnce(acts: readonly Act[]): Promise<void> {
  const barrier = Promise.withResolvers<void>()
  const started = acts.map(async (act) => {
    const turns = Math.floor(Math.random() * 3)
    await barrier.promise
    for (let n = 0; n < turns; n += 1) await turn()
    await act(pool.db)
  })
  barrier.resolve()
  await Promise.all(started)
}

tried('OK and ERROR: the first stays, the second is flagged, and the request is polled at once', {
  make: async (round) => {
    const requestId = randomUUID()
    if (round % 2 === 0) await track(requestId)
    return {
      requestId,
      acts: [await webhook({ sample: okImage(requestId) }), await webhook({ sample: failed(requestId) })],
    }
  },
  end: (one) => {
    expect(['COMPLETED', 'FAILED']).toContain(one.status)
    const completed = one.status === 'COMPLETED'
    expect(one).toMatchObject({ confirmed: false, pending: 0, media: completed ? 1 : 0, polled_next: true })
    expect(one.notified).toEqual([completed ? 'COMPLETED false' : 'FAILED true'])
    expect(one.flags.filter((flags) => flags.includes('contradiction'))).toHaveLength(1)
    expect(one.flags[completed ? 1 : 0]).toEqual(['contradiction'])
  },
})

const results = [
  (id: string) => imageResult(id, 3),
  (id: string) => ({ request_id: id, status: 'FAILED', error: { code: 'GENERATION_FAILED', message: 'no' }, cost: 0 }),
  (id: string) => ({ request_id: id, status: 'CANCELED' }),
  (id: string) => ({
    ...imageResult(id),
    output: { video: { url: 'https://media.test/v.mp4', width: 1, height: 1, duration: 1 } },
  }),
] as const

tried('a webhook and the reconciler: the provider has the last word, and readers hear each change once', {
  make: async (round) => {
    const requestId = randomUUID()
    await track(requestId)
    const result = results[round % 4] ?? results[0]
    const says = round % 8 < 4 ? okImage(requestId) : failed(requestId)
    return { requestId, acts: [await webhook({ sample: says }), await reconciler(requestId, result(requestId))] }
  },
  end: (one, round) => {
    const [status, media] =
      (
        [
          ['COMPLETED', 3],
          ['FAILED', 0],
          ['CANCELED', 0],
          ['COMPLETED', 1],
        ] as const
      )[round % 4] ?? []
    expect(one).toMatchObject({ status, media, confirmed: true, pending: 0, polled_next: null })
    const delivered = round % 8 < 4 ? 'COMPLETED' : 'FAILED'
    expect(one.flags[0]).toEqual(delivered === status ? [] : ['contradiction'])
    const first = delivered === 'COMPLETED' ? 'COMPLETED false' : 'FAILED true'
    // Both ways are right: the reconciler was first and the webhook changed nothing, or it overruled it.
    const both = first === `${status} true` ? [first] : [first, `${status} true`]
    expect([[`${status} true`], both]).toContainEqual(one.notified)
  },
})

tried("a contradicting webhook and the reconciler: a flag stays only where the provider's result differs", {
  make: async (round) => {
    const requestId = randomUUID()
    await track(requestId)
    await (
      await webhook({ sample: okImage(requestId) })
    )(pool.db)
    // From the second contradiction on, an extra poll is scheduled already.
    if (round % 2 === 1) await (await webhook({ sample: failed(requestId) }))(pool.db)
    const result = results[1](requestId)
    return { requestId, acts: [await webhook({ sample: failed(requestId) }), await reconciler(requestId, result)] }
  },
  end: (one, round) => {
    expect(one).toMatchObject({ status: 'FAILED', confirmed: true, media: 0, pending: 0 })
    expect(one.flags).toEqual([['contradiction'], ...(round % 2 === 1 ? [[]] : []), []])
  },
})

tried("two webhooks before anybody tracked, one of them with the provider's result in hand: the result stands, whole", {
  make: async (round) => {
    const requestId = randomUUID()
    const result = {
      request_id: requestId,
      status: 'FAILED',
      error: { code: 'GENERATION_FAILED', message: 'no' },
      cost: 0,
    }
    const webhookSample = round % 2 === 0 ? okImage(requestId) : failed(requestId)
    return {
      requestId,
      acts: [await webhook({ sample: webhookSample }), await webhook({ sample: okVideo(requestId), result })],
    }
  },
  end: (one, round) => {
    expect(one).toMatchObject({ status: 'FAILED', confirmed: true, media: 0, pending: 0 })
    expect(one.flags).toEqual([round % 2 === 0 ? ['contradiction'] : [], ['contradiction']])
    expect([['FAILED true'], ...(round % 2 === 0 ? [['COMPLETED false', 'FAILED true']] : [])]).toContainEqual(
      one.notified,
    )
  },
})

tried('the same body under another id: two deliveries, one effect, no flag', {
  make: async () => {
    const requestId = randomUUID()
    return {
      requestId,
      acts: [await webhook({ sample: okAudio(requestId) }), await webhook({ sample: okAudio(requestId) })],
    }
  },
  end: (one) => {
    expect(one).toMatchObject({
      status: 'COMPLETED',
      media: 1,
      pending: 0,
      flags: [[], []],
      parked: [null, null],
      notified: ['COMPLETED false'],
    })
  },
})

tried('another body under the same id: the first stays, the one that came later is flagged as reused', {
  make: async () => {
    const requestId = randomUUID()
    const webhookId = randomUUID()
    const first = await webhook({ sample: okAudio(requestId), webhookId })
    await turn()
    const spaced = { requestId, body: Buffer.concat([okAudio(requestId).body, Buffer.from(' ')]) }
    return { requestId, acts: [first, await webhook({ sample: spaced, webhookId })] }
  },
  end: (one) => {
    expect(one).toMatchObject({
      status: 'COMPLETED',
      media: 1,
      pending: 0,
      parked: [null, null],
      notified: ['COMPLETED false'],
    })
    expect(one.flags).toEqual([[], ['id_reused']])
  },
})

tried('a key of the other environment: parked with its reason, in either order', {
  make: async () => {
    const requestId = randomUUID()
    await track(requestId)
    return {
      requestId,
      acts: [
        await webhook({ sample: okAudio(requestId) }),
        await webhook({ sample: failed(requestId), keyName: 'sandbox' }),
      ],
    }
  },
  end: (one) => {
    expect(one).toMatchObject({
      status: 'COMPLETED',
      sandbox: false,
      pending: 0,
      media: 1,
      notified: ['COMPLETED false'],
    })
    expect(one.parked).toContain('key_mismatch')
    expect(one.flags.toSorted((a, b) => a.length - b.length)).toEqual([[], expect.arrayContaining(['key_mismatch'])])
  },
})

tried(
  'a key that is configured no longer, of the other environment or of an unknown one: parked as if it were still there',
  {
    make: async (round) => {
      const requestId = randomUUID()
      await track(requestId)
      const removed = { keyName: 'gone', ...(round % 2 === 0 && { signedBy: 'sandbox' as const }) }
      return {
        requestId,
        acts: [await webhook({ sample: okAudio(requestId) }), await webhook({ sample: failed(requestId), ...removed })],
      }
    },
    end: (one) => {
      expect(one).toMatchObject({
        status: 'COMPLETED',
        sandbox: false,
        key_name: 'live',
        pending: 0,
        media: 1,
        notified: ['COMPLETED false'],
      })
      expect(one.parked).toEqual([null, 'key_mismatch'])
    },
  },
)

tried('a key that is configured no longer and a live one, before anybody tracked: the live one stands', {
  make: async () => {
    const requestId = randomUUID()
    const live = await webhook({ sample: okAudio(requestId) })
    return {
      requestId,
      acts: [live, await webhook({ sample: failed(requestId), keyName: 'gone', signedBy: 'sandbox' })],
    }
  },
  end: (one) => {
    expect(one).toMatchObject({ status: 'COMPLETED', sandbox: false, pending: 0, media: 1, polled_next: true })
    expect(one.flags[1]).toEqual(['contradiction', 'key_mismatch'])
  },
})

/** A webhook of each environment for one request, and the acts after them. */
async function bothEnvironments(requestId: string): Promise<[Act, Act]> {
  return [
    await webhook({ sample: okAudio(requestId) }),
    await webhook({ sample: failed(requestId), keyName: 'sandbox' }),
  ]
}

tried(
  'keys of both keyNames before anybody tracked: the live one stands, the sandbox one is flagged, and the request is polled at once',
  {
    make: async (round) => {
      const requestId = randomUUID()
      // Tracked by its id alone, or with the name of a key that is not configured, is as not tracked at all.
      if (round % 3 > 0) await track(requestId, { key_name: round % 3 === 1 ? null : 'elsewhere' })
      return { requestId, acts: await bothEnvironments(requestId) }
    },
    end: (one) => {
      expect(one).toMatchObject({
        status: 'COMPLETED',
        sandbox: false,
        pending: 0,
        media: 1,
        confirmed: false,
        polled_next: true,
      })
      const overruled = one.notified.length === 2
      expect(one.notified).toEqual(overruled ? ['FAILED true', 'COMPLETED false'] : ['COMPLETED false'])
      expect(one.flags[1]).toEqual(['contradiction', 'key_mismatch'])
      expect(one.parked).toEqual([null, overruled ? null : 'key_mismatch'])
    },
  },
)

tried(
  'a forged sandbox webhook and the reconciler with a live key: the provider has the last word, with exactly its media',
  {
    make: async () => {
      const requestId = randomUUID()
      await track(requestId, { key_name: null })
      const forged = await webhook({ sample: okVideo(requestId), keyName: 'sandbox' })
      return { requestId, acts: [forged, await reconciler(requestId, imageResult(requestId, 3))] }
    },
    end: (one) => {
      expect(one).toMatchObject({
        status: 'COMPLETED',
        sandbox: false,
        key_name: 'live',
        confirmed: true,
        media: 3,
        pending: 0,
        polled_next: null,
      })
      expect([['COMPLETED true'], ['COMPLETED false', 'COMPLETED true']]).toContainEqual(one.notified)
      expect(one.flags).toEqual([['key_mismatch']])
    },
  },
)

tried(
  'a forged sandbox webhook and tracking with a live key: the row is the tracked one, and the request is polled at once',
  {
    make: async () => {
      const requestId = randomUUID()
      const forged = await webhook({ sample: failed(requestId), keyName: 'sandbox' })
      const body = { request_id: requestId, key_name: 'live', metadata: { order: 6 } }
      const api: Act = (db) => trackRequest(db, body, { environment: 'live', now: postgresTime() })
      return { requestId, acts: [forged, api] }
    },
    end: (one) => {
      expect(one).toMatchObject({
        key_name: 'live',
        sandbox: false,
        metadata: { order: 6 },
        pending: 0,
        media: 0,
        polled_next: true,
      })
      const landed = one.status === 'FAILED'
      expect(one.notified).toEqual(landed ? ['FAILED true'] : [])
      expect(one.parked).toEqual([landed ? null : 'key_mismatch'])
    },
  },
)

tried(
  'a live webhook of a request tracked as a sandbox one, and tracking it with a live key: the webhook does not stay parked',
  {
    make: async () => {
      const requestId = randomUUID()
      const now = postgresTime()
      await trackRequest(pool.db, { request_id: requestId, key_name: 'sandbox' }, { environment: 'sandbox', now })
      const corrected: Act = (db) =>
        trackRequest(db, { request_id: requestId, key_name: 'live' }, { environment: 'live', now })
      return { requestId, acts: [await webhook({ sample: okAudio(requestId) }), corrected] }
    },
    end: (one) => {
      expect(one).toMatchObject({ key_name: 'live', sandbox: false, parked: [null] })
      // It has landed, or is judged again.
      expect(one.status === 'COMPLETED' ? 0 : 1).toBe(one.pending)
    },
  },
)

it.each([
  [
    'the API',
    async (db: Database, requestId: string) =>
      void (await trackRequest(
        db,
        { request_id: requestId, key_name: 'live' },
        { environment: 'live', now: postgresTime() },
      )),
  ],
  ["a service's own INSERT", insertTracked],
])(
  'a forged sandbox webhook, tracked by %s, is overruled by a later live one, and not by another sandbox one',
  async (_by, tracking) => {
    const requestId = randomUUID()
    const [live, forged] = await bothEnvironments(requestId)
    await forged(pool.db)
    await tracking(pool.db, requestId)
    await (
      await webhook({ sample: okVideo(requestId), keyName: 'sandbox' })
    )(pool.db)
    await live(pool.db)
    await flushNotices()
    const [one] = await endsOf([requestId])
    expect(one).toMatchObject({
      status: 'COMPLETED',
      sandbox: false,
      key_name: 'live',
      media: 1,
      notified: ['FAILED true', 'COMPLETED false'],
    })
    expect(one?.parked).toEqual([null, null, 'key_mismatch'])
  },
)

tried("the answer to a submit and the request's webhook: joined, metadata included", {
  make: async () => {
    const [requestId, idempotencyKey] = [randomUUID(), randomUUID()]
    const now = postgresTime()
    const opened = await intents.open(pool.db, {
      idempotencyKey,
      model: 'lyra-audio',
      input: {},
      keyName: 'live',
      webhookUrl: 'https://hooks.test/webhooks',
      metadata: { order: 5 },
      now,
    })
    if (opened.kind !== 'ours') throw new Error('the intent is not ours')
    const answered: Act = (db) =>
      intents.submitted(db, opened.generation, { requestId, cost: 2, environment: 'live', now })
    return { requestId, acts: [answered, await webhook({ sample: okAudio(requestId) })] }
  },
  end: (one) => {
    expect(one).toMatchObject({
      status: 'COMPLETED',
      metadata: { order: 5 },
      sandbox: false,
      media: 1,
      pending: 0,
      flags: [[]],
      notified: ['COMPLETED false'],
    })
  },
})

it('a landing that waited for one that died sees nothing of it', async () => {
  const requestId = randomUUID()
  await track(requestId)
  const lost = await webhook({ sample: okImage(requestId) })
  await secondWaits(lost, (db) => land(db, resultLanding(requestId)), 'rollback')
  await flushNotices()
  expect((await endsOf([requestId]))[0]).toMatchObject({
    status: 'CANCELED',
    media: 0,
    notified: ['CANCELED true'],
    pending: 1,
  })
  await lost(pool.db)
  expect((await endsOf([requestId]))[0]).toMatchObject({
    status: 'CANCELED',
    media: 0,
    flags: [['contradiction']],
    pending: 0,
  })
})

it('a landing with an ended claim has its effect but does not settle: the next claimant keeps the delivery', async () => {
  const requestId = randomUUID()
  const stale = await webhook({ sample: okAudio(requestId) })
  await pool.db.execute(sql`update mediadock.inbox set claims = 1`)
  await stale(pool.db)
  await flushNotices()
  expect((await endsOf([requestId]))[0]).toMatchObject({
    status: 'COMPLETED',
    pending: 1,
    notified: ['COMPLETED false'],
  })
})

function resultLanding(requestId: string): ReportToLand {
  const origin = { via: 'poll', source_name: null, reporting_key: 'live', environment: 'live' } as const
  return reportToLand(reportOf({ request_id: requestId, status: 'CANCELED' }), origin, undefined)
}
