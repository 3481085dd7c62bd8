import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createLogger } from '../../../src/platform/logger.ts'
import { createPool, type Pool } from '../../../src/platform/postgres/postgres.ts'
import { timeOf } from '../../../src/platform/postgres/time.ts'
import { createPollLog } from '../../../src/receiver/fetching/poll-log.ts'
import { noteKeyUses } from '../../../src/receiver/intake/arrival-log.ts'
import { storeDeliveries } from '../../../src/receiver/intake/store.ts'
import { readRecent } from '../../../src/receiver/queries/stats.ts'
import { recorded, type ReconcileRun } from '../../../src/receiver/reconciling/reconciler.ts'
import { finalAfterSeconds, writeMinutes } from '../../../src/receiver/upkeep/minutes.ts'
import { pruneOnce } from '../../../src/receiver/upkeep/retention.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { newDelivery } from '../../support/worker.ts'

let database: TestDatabase
let pool: Pool

beforeAll(async () => {
  database = await createTestDatabase()
  pool = createPool({ url: database.url, max: 4 })
})
beforeEach(async () => {
  await database.sql`truncate mediadock.minutes, mediadock.arrivals, mediadock.arrival_counts, mediadock.reconcile_runs, mediadock.key_uses, mediadock.polls, mediadock.audit, mediadock.process_starts,
    mediadock.requests, mediadock.deliveries, mediadock.inbox`
})
afterAll(async () => {
  await pool.close()
  await database.drop()
})

const minute = new Date('2026-05-05T05:05:00Z')
const at = (seconds: number) => new Date(minute.getTime() + seconds * 1000)

describe('runs of the reconciler', () => {
  const runs = () =>
    database.sql`select id::int, trigger, outcome, idle_runs, scanned, error, started_at, ended_at from mediadock.reconcile_runs order by id`
  const runAt = (seconds: number, run: Partial<ReconcileRun> = {}, trigger: 'cron' | 'manual' = 'cron') =>
    recorded({ db: pool.db, time: timeOf(() => at(seconds)) }, trigger, async (counts) => Object.assign(counts, run))

  it('share one row while idle, with the first and last time, and get a new row for work', async () => {
    const first = await runAt(0)
    expect((await runAt(30)).id).toBe(first.id)
    await runAt(60)
    await runAt(90, { scanned: 2 })
    await runAt(120)
    await runAt(150)
    expect(await runs()).toMatchObject([
      { outcome: 'idle', idle_runs: 3, started_at: at(0), ended_at: at(60) },
      { outcome: 'ok', idle_runs: 0, scanned: 2, ended_at: at(90) },
      { outcome: 'idle', idle_runs: 2, started_at: at(120), ended_at: at(150) },
    ])
  })

  it('have a separate row if started by hand, even if idle', async () => {
    await runAt(0)
    await runAt(10, {}, 'manual')
    expect(await runs()).toMatchObject([{ trigger: 'cron' }, { trigger: 'manual', outcome: 'ok' }])
  })

  it('record the error of a failed run, and rethrow it', async () => {
    await expect(
      recorded({ db: pool.db, time: timeOf(() => minute) }, 'cron', () =>
        Promise.reject(new Error('the provider is gone')),
      ),
    ).rejects.toThrow('the provider is gone')
    expect(await runs()).toMatchObject([{ outcome: 'error', error: 'the provider is gone' }])
  })
})

describe('the minutes', () => {
  const arrive = (
    seconds: number,
    outcome: string,
    { reason = null, ackMs = 10, folded = 0 }: { reason?: string | null; ackMs?: number; folded?: number } = {},
  ) =>
    database.sql`insert into mediadock.arrivals (arrived_at, outcome, reason, status, ack_ms, folded)
      values (${at(seconds)}, ${outcome}, ${reason}, ${outcome === 'refused' ? 401 : 200}, ${ackMs}, ${folded})`
  const written = () =>
    database.sql`select minute, arrivals, ack_p50_ms, landed, landing_p50_seconds, inbox_pending, overdue from mediadock.minutes order by minute`
  const write = (seconds: number) => writeMinutes(pool.db, { now: at(seconds), stuckAfterSeconds: 120 })

  it('count arrivals and landings of each minute once it is over, folded rows included', async () => {
    await arrive(-1, 'accepted')
    for (const ackMs of [10, 20, 60]) await arrive(0, 'accepted', { ackMs })
    await arrive(59.999, 'refused', { reason: 'no_matching_secret', folded: 41, ackMs: 500 })
    await arrive(60, 'accepted')
    await database.sql`with links as (insert into mediadock.media (request_id, kind, position, url) values
        ('00000000-0000-4000-8000-000000000001', 'image', 0, 'https://media.test/1'), ('00000000-0000-4000-8000-000000000002', 'image', 0, 'https://media.test/2'))
      insert into mediadock.requests (request_id, status, source, tracked_at, landed_at) values
      ('00000000-0000-4000-8000-000000000001', 'COMPLETED', 'webhook', ${at(1)}, ${at(3)}), ('00000000-0000-4000-8000-000000000002', 'COMPLETED', 'reconciler', ${at(1)}, ${at(9)})`
    for (const [id, received] of [
      ['1', at(1)],
      ['2', at(2)],
    ] as const) {
      await database.sql`insert into mediadock.deliveries (id, webhook_id, request_id, key_name, signed_at, received_at, headers, body)
        values (${`00000000-0000-4000-8000-00000000000${id}`}, ${id}, '00000000-0000-4000-8000-000000000001', 'live', now(), ${received}, '{}', '')`
    }
    await write(90)
    expect(await written()).toEqual([
      // The median of 10, 20 and 60 ms, measured from the first delivery of a result that a webhook landed.
      {
        minute,
        arrivals: { accepted: 3, 'refused/no_matching_secret': 42 },
        ack_p50_ms: 20,
        landed: 2,
        landing_p50_seconds: 2,
        inbox_pending: null,
        overdue: null,
      },
      {
        minute: at(60),
        arrivals: { accepted: 1 },
        ack_p50_ms: 10,
        landed: 0,
        landing_p50_seconds: null,
        inbox_pending: 0,
        overdue: 0,
      },
    ])
  })

  it('are the same when several replicas write them at once', async () => {
    for (let n = 0; n < 5; n += 1) await arrive(n, 'accepted')
    await Promise.all([write(20), write(20), write(21), write(22)])
    expect(await written()).toMatchObject([{ minute: at(-60) }, { minute, arrivals: { accepted: 5 } }])
  })

  it('include late log rows, then stay final, and keep the highest backlog', async () => {
    const id = '00000000-0000-4000-8000-000000000003'
    await database.sql`insert into mediadock.inbox (delivery_id, due_at) values (${id}, now())`
    await database.sql`insert into mediadock.deliveries (id, webhook_id, key_name, signed_at, received_at, headers, body) values (${id}, 'w', 'live', now(), ${at(0)}, '{}', '')`
    await write(20)
    await database.sql`truncate mediadock.inbox`
    await write(50)
    await arrive(58, 'accepted')
    await write(62)
    expect((await written()).find((row) => row['minute'].getTime() === minute.getTime())).toMatchObject({
      arrivals: { accepted: 1 },
      inbox_pending: 1,
    })
    await arrive(59, 'accepted')
    await write(60 + finalAfterSeconds)
    await arrive(59.5, 'accepted')
    await write(110)
    expect((await written()).find((row) => row['minute'].getTime() === minute.getTime())).toMatchObject({
      arrivals: { accepted: 2 },
    })
  })

  it('count each arrival of the last five once, written or not', async () => {
    for (const seconds of [-301, -300, -200, -100, -61, -60, -1, 0, 30]) await arrive(seconds, 'accepted')
    await arrive(10, 'refused', { reason: 'a/b', folded: 2 })
    const expected = {
      minutes: 5,
      arrivals: 11,
      by_outcome: [
        { outcome: 'accepted', reason: null, arrivals: 8 },
        { outcome: 'refused', reason: 'a/b', arrivals: 3 },
      ],
    }
    expect(await readRecent(pool.db, at(40))).toMatchObject(expected)
    // With a gap between written minutes, in which no receiver ran.
    for (const now of [-225, -105]) await write(now)
    expect(await readRecent(pool.db, at(40))).toMatchObject(expected)
    await write(40)
    expect(await readRecent(pool.db, at(40))).toMatchObject(expected)
  })

  it('are counted by every write to the log, and never by reading the log', async () => {
    await database.sql`insert into mediadock.arrivals (arrived_at, outcome, reason, status, ack_ms, folded)
      select ${at(0)}::timestamptz + i % 2 * interval '60 s', case when i % 3 = 0 then 'parked' else 'accepted' end, case when i % 3 = 0 then 'x' end, 200, 1, i % 5
      from generate_series(0, 29) as i`
    const taken = database.sql.begin(async (sql) => {
      await sql`insert into mediadock.arrivals (arrived_at, outcome, status, ack_ms) values (${at(0)}, 'accepted', 200, 1)`
      throw new Error('taken back')
    })
    await expect(taken).rejects.toThrow('taken back')
    await database.sql`truncate mediadock.arrivals`
    const recent = await readRecent(pool.db, at(61))
    expect(recent.by_outcome).toEqual([
      { outcome: 'accepted', reason: null, arrivals: 60 },
      { outcome: 'parked', reason: 'x', arrivals: 30 },
    ])
    await write(61)
    expect((await written()).map((row) => row['arrivals'])).toEqual([
      { accepted: 30, 'parked/x': 15 },
      { accepted: 30, 'parked/x': 15 },
    ])
  })

  it('delete the counts of the log after an hour', async () => {
    for (const seconds of [-3700, -3500, 0]) await arrive(seconds, 'accepted')
    await write(0)
    expect(await database.sql`select count(*)::int as n from mediadock.arrival_counts`).toEqual([{ n: 2 }])
  })
})

describe('uses of keys', () => {
  it('add up in any order', async () => {
    await noteKeyUses(pool.db, [
      { keyName: 'live', receivedAt: at(10) },
      { keyName: 'sandbox', receivedAt: at(5) },
      { keyName: 'live', receivedAt: at(30) },
    ])
    await noteKeyUses(pool.db, [{ keyName: 'live', receivedAt: at(1) }])
    await noteKeyUses(pool.db, [])
    expect(
      await database.sql`select key_name, first_match_at, last_match_at, matches::int from mediadock.key_uses order by key_name`,
    ).toEqual([
      { key_name: 'live', first_match_at: at(1), last_match_at: at(30), matches: 3 },
      { key_name: 'sandbox', first_match_at: at(5), last_match_at: at(5), matches: 1 },
    ])
  })
})

describe('the log of polls', () => {
  it('is bounded while Postgres is away, and keeps hostile details', async () => {
    let dropped = 0
    const log = createPollLog({ db: pool.db, dropped: { inc: () => (dropped += 1) }, wake: () => {} })
    for (let n = 0; n < 10_002; n += 1) {
      log.record({
        requestId: '00000000-0000-4000-8000-000000000004',
        keyName: 'live',
        polledAt: at(n),
        outcome: 'invalid',
        detail: n === 0 ? 'a\0b\ud800' : undefined,
      })
    }
    expect([log.waiting(), dropped]).toEqual([10_000, 2])
    while ((await log.runOnce()).more);
    const [row] = await database.sql`select count(*)::int as n, max(detail) as detail from mediadock.polls`
    expect(row).toEqual({ n: 10_000, detail: 'ab\ufffd' })
  })
})

describe('retention', () => {
  it('deletes history after RETENTION_DAYS, and keeps the last match of each key', async () => {
    const [old, fresh] = [at(-31 * 86_400), at(-29 * 86_400)]
    for (const when of [old, fresh]) {
      await database.sql`insert into mediadock.audit (at, via, actor, action) values (${when}, 'cli', 'x', 'y')`
      await database.sql`insert into mediadock.polls (request_id, polled_at, key_name, outcome) values ('00000000-0000-4000-8000-000000000005', ${when}, 'live', 'result')`
      await database.sql`insert into mediadock.reconcile_runs (started_at, ended_at, trigger, outcome) values (${old}, ${when}, 'cron', 'idle')`
      await database.sql`insert into mediadock.minutes (minute, written_at, arrivals, landed) values (${when}, ${when}, '{}', 0)`
      await database.sql`insert into mediadock.process_starts values (${when}, 'h', 1, '1')`
      await database.sql`insert into mediadock.key_uses values (${String(when)}, ${when}, ${when}, 1)`
    }
    const delivery = newDelivery(Buffer.from('{}'))
    await storeDeliveries(pool.db, [delivery])
    // The other delivery was discarded.
    await database.sql`insert into mediadock.attempts (delivery_id, attempted_at, outcome) values (${delivery.id}, ${old}, 'parked'), (${randomUUID()}, ${old}, 'retry')`
    const pruned = await pruneOnce(
      { db: pool.db, retentionDays: 30, clock: () => minute, logger: createLogger('silent') },
      new AbortController().signal,
    )
    expect(pruned['notes']).toBe(6)
    expect(await database.sql`select delivery_id from mediadock.attempts`).toEqual([{ delivery_id: delivery.id }])
    const [left] =
      await database.sql`select (select count(*) from mediadock.audit) + (select count(*) from mediadock.polls) + (select count(*) from mediadock.reconcile_runs)
      + (select count(*) from mediadock.minutes) + (select count(*) from mediadock.process_starts) as notes, (select count(*) from mediadock.key_uses) as keys`
    expect(left).toEqual({ notes: '5', keys: '2' })
  })
})
