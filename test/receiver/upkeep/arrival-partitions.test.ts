import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import path from 'node:path'
import postgres from 'postgres'
import { describe, expect, inject, it, onTestFinished } from 'vitest'
import { withDeadline } from '../../../src/platform/deadline.ts'
import { createLogger } from '../../../src/platform/logger.ts'
import { createPool, type Pool } from '../../../src/platform/postgres/postgres.ts'
import { dropDaysBefore, ensurePartitions } from '../../../src/receiver/upkeep/arrival-partitions.ts'
import { pruneOnce } from '../../../src/receiver/upkeep/retention.ts'
import { usualServers, withTestDatabase, type TestDatabase, type TestServer } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { describeOnPackaged } from '../../support/own-packaged-postgres.ts'
import { startTestReceiver } from '../../support/receiver.ts'
import { deliver, failed } from '../../support/webhooks.ts'

const dayMs = 86_400_000
/** Far beyond the 200 ms that a lock is waited for, far below the dump. */
const soonMs = 5000

async function openPool(database: TestDatabase): Promise<Pool> {
  const pool = createPool({ url: database.url, max: 4 })
  onTestFinished(() => pool.close())
  return pool
}

/** Holds what a dump holds until it is let go of: a lock on every table of the log. */
async function startDump(database: TestDatabase): Promise<() => Promise<void>> {
  const client = postgres(database.url, { max: 1, onnotice: () => {} })
  await client.unsafe('begin')
  await client.unsafe('lock table mediadock.arrivals, mediadock.requests, mediadock.deliveries in access share mode')
  let ended = false
  const end = async () => {
    if (ended) return
    ended = true
    await client.unsafe('commit')
    await client.end({ timeout: 1 })
  }
  onTestFinished(end)
  return end
}

const insertAt = ({ client }: Pool, at: Date) =>
  withDeadline(
    client`insert into mediadock.arrivals (arrived_at, outcome, status, ack_ms) values (${at.toISOString()}::timestamptz, 'accepted', 200, 1)`,
    soonMs,
    'an insert',
  )

const dayOf = (at: Date) => at.toISOString().slice(0, 10).replaceAll('-', '')

/** Where the rows of a day are. */
const placesOf = async ({ sql }: TestDatabase, at: Date) =>
  (
    await sql`select distinct tableoid::regclass::text as place from mediadock.arrivals where arrived_at::date = ${at}::timestamptz::date order by 1`
  ).map(({ place }) => place)

const days = async ({ sql }: TestDatabase) =>
  (
    await sql`select inhrelid::regclass::text as name from pg_inherits where inhparent = 'mediadock.arrivals'::regclass order by 1`
  ).map(({ name }) => name)

/** The tests' template holds the days of this week already. */
async function withoutDays(server: TestServer): Promise<TestDatabase> {
  const database = await withTestDatabase(server)
  for (const name of await days(database)) if (/_\d{8}$/.test(name)) await database.sql.unsafe(`drop table ${name}`)
  return database
}

describe.each(usualServers)('days of the arrival log on the %s server', (server) => {
  it('are created a week ahead, once, by any number of concurrent callers', async () => {
    const database = await withoutDays(server)
    const pool = await openPool(database)
    const now = new Date('2031-03-30T23:59:59.999Z')
    await eventually(async () => {
      const rounds = await Promise.all(Array.from({ length: 4 }, () => ensurePartitions(pool.db, now)))
      return rounds.every(({ missing }) => missing === 0)
    })
    expect(await days(database)).toEqual([
      ...Array.from(
        { length: 8 },
        (_, ahead) => `mediadock.arrivals_${dayOf(new Date(now.getTime() + ahead * dayMs))}`,
      ),
      'mediadock.arrivals_other',
    ])
    await insertAt(pool, now)
    await insertAt(pool, new Date(now.getTime() + 1))
    expect(await placesOf(database, now)).toEqual(['mediadock.arrivals_20310330'])
    expect(await placesOf(database, new Date(now.getTime() + 1))).toEqual(['mediadock.arrivals_20310331'])
    const [indexes] = await database.sql`
      select count(*)::int as n, count(*) filter (where not indisvalid)::int as invalid from pg_index where indrelid = 'mediadock.arrivals_20310330'::regclass`
    const [parent] =
      await database.sql`select count(*)::int as n from pg_index where indrelid = 'mediadock.arrivals'::regclass`
    expect(indexes).toEqual({ n: parent?.['n'], invalid: 0 })
  })

  it("are created after a dump's locks; inserts continue meanwhile, and their rows are moved afterwards", async () => {
    const database = await withoutDays(server)
    const pool = await openPool(database)
    const now = new Date('2031-05-01T12:00:00Z')
    const endDump = await startDump(database)

    const round = withDeadline(ensurePartitions(pool.db, now), soonMs, 'a round')
    const inserted = Array.from({ length: 20 }, () => insertAt(pool, now))
    expect(await round).toMatchObject({ made: 0, missing: 8 })
    await Promise.all(inserted)
    expect(await placesOf(database, now)).toEqual(['mediadock.arrivals_other'])

    await endDump()
    expect(await ensurePartitions(pool.db, now)).toEqual({ made: 8, missing: 0 })
    expect(await placesOf(database, now)).toEqual(['mediadock.arrivals_20310501'])
    expect(await database.sql`select count(*)::int as n from mediadock.arrivals`).toEqual([{ n: 20 }])
  })

  it('beyond retention are dropped, but not while a dump locks them, and no statement waits', async () => {
    const database = await withoutDays(server)
    const pool = await openPool(database)
    const [old, now] = [new Date('2031-06-01T12:00:00Z'), new Date('2031-08-01T12:00:00Z')]
    await ensurePartitions(pool.db, old)
    await ensurePartitions(pool.db, now)
    await insertAt(pool, old)
    await insertAt(pool, new Date('2031-05-01T12:00:00Z'))
    const deps = { db: pool.db, retentionDays: 30, clock: () => now, logger: createLogger('silent') }
    const prune = () => withDeadline(pruneOnce(deps, new AbortController().signal), soonMs * 2, 'pruning')

    const endDump = await startDump(database)
    const pruning = prune()
    await Promise.all(Array.from({ length: 20 }, () => insertAt(pool, now)))
    expect(await pruning).toMatchObject({ partitions: 0 })
    expect(await placesOf(database, old)).toEqual(['mediadock.arrivals_20310601'])
    expect(await placesOf(database, new Date('2031-05-01T12:00:00Z'))).toEqual([])

    await endDump()
    expect(await prune()).toMatchObject({ partitions: 8 })
    expect(await days(database)).not.toContain('mediadock.arrivals_20310608')
    expect(await database.sql`select count(*)::int as n from mediadock.arrivals`).toEqual([{ n: 20 }])
  })

  it('are dropped by day: the day of the cutoff itself is kept', async () => {
    const database = await withoutDays(server)
    const pool = await openPool(database)
    const first = new Date('2031-09-01T00:00:00Z')
    await ensurePartitions(pool.db, first)
    expect(await dropDaysBefore(pool.db, new Date('2031-09-03T00:00:00Z'), new AbortController().signal)).toEqual({
      dropped: 2,
      left: 0,
    })
    expect(await days(database)).toContain('mediadock.arrivals_20310903')
  })
})

describe.each(usualServers)('a receiver that starts while a dump runs on the %s server', (server) => {
  it('is ready, accepts deliveries, logs their arrival, and creates the days afterwards', async () => {
    const database = await withoutDays(server)
    const endDump = await startDump(database)
    const receiver = await withDeadline(startTestReceiver({ databaseUrl: database.url }), 10_000, 'the start')
    try {
      await eventually(async () => (await fetch(new URL('/readyz', receiver.internalUrl))).status === 200)
      expect((await deliver(receiver.webhookUrl, failed(randomUUID()).body)).status).toBe(200)
      await eventually(async () => (await placesOf(database, new Date())).includes('mediadock.arrivals_other'))
      await endDump()
      await eventually(async () =>
        (await placesOf(database, new Date())).includes(`mediadock.arrivals_${dayOf(new Date())}`),
      )
    } finally {
      await receiver.stop()
    }
  })
})

describeOnPackaged('pg_dump itself, blocked by the reader of its output', () => {
  it('runs while days are due: nothing waits for it, and the dump is complete', async () => {
    const database = await withoutDays('packaged')
    const pool = await openPool(database)
    await database.sql`insert into mediadock.quarantine (arrived_at, reason, headers, body) select now(), 'x', '{}', convert_to(repeat(md5(n::text), 30000), 'utf8') from generate_series(1, 5) as n`
    const dump = spawn(path.join(inject('packagedBinaries'), 'pg_dump'), ['--dbname', database.url], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    onTestFinished(() => void dump.kill('SIGKILL'))
    // Of this database: the tables of other tests, made from one template, have the same oid.
    const isHolding = () =>
      database.sql`
        select from pg_locks join pg_database d on d.oid = pg_locks.database and d.datname = current_database()
        where relation = 'mediadock.arrivals'::regclass and mode = 'AccessShareLock' and pid <> pg_backend_pid()`
    await eventually(async () => (await isHolding()).length > 0)

    const now = new Date('2031-05-01T12:00:00Z')
    const round = withDeadline(ensurePartitions(pool.db, now), soonMs, 'a round')
    await Promise.all(Array.from({ length: 20 }, () => insertAt(pool, now)))
    expect(await round).toEqual({ made: 0, missing: 8 })
    expect(await isHolding()).toHaveLength(1)

    let bytes = 0
    dump.stdout.on('data', (chunk: Buffer) => (bytes += chunk.length))
    const [code] = await once(dump, 'close')
    expect({ code, bytes }).toEqual({ code: 0, bytes: expect.toSatisfy((n: number) => n > 5_000_000) })
    expect(await ensurePartitions(pool.db, now)).toEqual({ made: 8, missing: 0 })
  })
})
