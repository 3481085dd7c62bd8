import { integer, pgTable, text, timestamp } from 'drizzle-orm/pg-core'
import { beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { sql, type SQL } from '../../../src/platform/postgres/drizzle.ts'
import { leaseOf } from '../../../src/platform/postgres/lease.ts'
import { createPool, type Database } from '../../../src/platform/postgres/postgres.ts'
import { postgresTime, timeOf } from '../../../src/platform/postgres/time.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'

const work = pgTable('work', {
  place: text('place').notNull(),
  number: integer('number').notNull(),
  due_at: timestamp('due_at', { withTimezone: true }).notNull().defaultNow(),
  claims: integer('claims').notNull().default(0),
  failures: integer('failures').notNull().default(0),
  trouble: text('trouble'),
})
const lease = leaseOf('w', { ...work, key: { place: work.place, number: work.number } })
const seconds = 10
const start = new Date('2026-03-01T12:00:00Z')
/** The shared time, so many seconds after the start. */
const at = (after: number): SQL => timeOf(() => new Date(start.getTime() + after * 1000))()

type Claimed = { place: string; number: number; claims: number }

async function claim(db: Database, now: SQL): Promise<Claimed[]> {
  return db.execute<Claimed>(sql`
    update work w set ${lease.claim(now, seconds)} where ${lease.isDue(now)} returning place, number, claims`)
}

async function claimOne(db: Database, now: SQL): Promise<Claimed> {
  const [one = expect.fail('nothing was due')] = await claim(db, now)
  return one
}

describe('a lease', () => {
  let database: TestDatabase
  let db: Database
  const row = async () => Object((await database.sql`select * from work`)[0])

  beforeAll(async () => {
    database = await createTestDatabase()
    const pool = createPool({ url: database.url, max: 2 })
    ;({ db } = pool)
    await database.sql`create table work (place text, number int, due_at timestamptz not null default now(),
      claims int not null default 0, failures int not null default 0, trouble text, primary key (place, number))`
    return async () => {
      await pool.close()
      await database.drop()
    }
  })
  const begin = async (numbers = [1]) => {
    await database.sql`truncate work`
    for (const number of numbers)
      await database.sql`insert into work (place, number, due_at) values ('here', ${number}, ${start})`
  }

  it('keeps other claimants off a row until it ends, and no longer', async () => {
    await begin()
    await claimOne(db, at(0))
    expect(await claim(db, at(seconds - 1))).toEqual([])
    expect(await claim(db, at(seconds))).toHaveLength(1)
  })

  it('fences: after a second claim the first claimant writes, renews and ends nothing', async () => {
    await begin()
    const first = await claimOne(db, at(0))
    const second = await claimOne(db, at(seconds))
    const before = await row()
    expect(await lease.write(db, first, sql`trouble = 'late'`)).toBe(false)
    expect(await lease.write(db, first, lease.giveBack(at(0)))).toBe(false)
    expect(await lease.renew(db, [first], { now: at(seconds), seconds })).toEqual([])
    expect(await row()).toEqual(before)
    expect(await lease.write(db, second, sql`trouble = 'ours'`)).toBe(true)
  })

  it('ends once: after a release, the former claimant writes nothing', async () => {
    await begin()
    const first = await claimOne(db, at(0))
    expect(await lease.write(db, first, lease.giveBack(at(1)))).toBe(true)
    expect(await lease.write(db, first, lease.putOff(at(1), { pauseSeconds: 60, trouble: 'late' }))).toBe(false)
    expect(await claim(db, at(1))).toHaveLength(1)
  })

  it('is renewed only for rows still held, and returns them', async () => {
    await begin([1, 2, 3])
    const held = (await claim(db, at(0))).toSorted((a, b) => a.number - b.number)
    await database.sql`update work set claims = claims + 1 where number = 2`
    const [first, , third] = held
    expect(await lease.renew(db, held, { now: at(9), seconds, only: sql`w.number < 4` })).toEqual([first, third])
    expect((await claim(db, at(seconds))).map(({ number }) => number)).toEqual([2])
    expect((await claim(db, at(9 + seconds))).map(({ number }) => number).toSorted((a, b) => a - b)).toEqual([1, 3])
  })

  it('is renewed for the others while another transaction has locked one of the rows, which stays held', async () => {
    await begin([1, 2])
    const held = (await claim(db, at(0))).toSorted((a, b) => a.number - b.number)
    await database.sql.begin(async (tx) => {
      await tx`select from work where number = 1 for update`
      expect(await lease.renew(db, held, { now: at(9), seconds })).toEqual(held)
    })
    expect((await claim(db, at(seconds))).map(({ number }) => number)).toEqual([1])
  })

  it("becomes due after a failure's pause, and never after its work has ended", async () => {
    await begin()
    await lease.write(db, await claimOne(db, at(0)), lease.putOff(at(1), { pauseSeconds: 60, trouble: 'no answer' }))
    expect(await row()).toMatchObject({ failures: 1, trouble: 'no answer' })
    expect(await claim(db, at(60))).toEqual([])
    await lease.write(db, await claimOne(db, at(61)), lease.end)
    expect(await claim(db, at(1e9))).toEqual([])
  })

  it.each([1, -1])("uses Postgres's time on a host whose clock is %i h ahead", async (hours) => {
    await begin()
    const isDueIn = (minutes: number) =>
      database.sql`update work set due_at = now() + make_interval(mins => ${minutes}::int)`
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + hours * 3_600_000 })
    onTestFinished(() => void vi.useRealTimers())
    await isDueIn(30)
    expect(await claim(db, postgresTime())).toEqual([])
    await isDueIn(0)
    await claimOne(db, postgresTime())
    const [leased] = await database.sql`select due_at between now() and now() + interval '11 seconds' as ok from work`
    expect(leased).toEqual({ ok: true })
  })
})
