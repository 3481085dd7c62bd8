import { afterAll, beforeAll, expect, it } from 'vitest'
import { blockCalls, remainingCalls, takeCall } from '../../src/receiver/call-budget.ts'
import { createPool, type Pool } from '../../src/runtime/postgres.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'

let database: TestDatabase
let pool: Pool

beforeAll(async () => {
  database = await createTestDatabase()
  pool = createPool({ url: database.url, max: 8 })
})
afterAll(async () => {
  await pool.close()
  await database.drop()
})

const start = Date.parse('2026-03-01T12:00:00.400Z')
const at = (seconds: number) => new Date(start + seconds * 1000)

async function granted(keyName: string, seconds: number, { limit = 5, reserve = 0 } = {}): Promise<boolean> {
  return (await takeCall(pool.db, { keyName, limitPerMinute: limit, reserve, now: at(seconds) })).ok
}

it('grants exactly the limit to many that ask at once', async () => {
  const asked = await Promise.all(Array.from({ length: 40 }, () => granted('crowd', 0, { limit: 7 })))
  expect(asked.filter(Boolean)).toHaveLength(7)
})

it('never grants more than the limit in any 60 s, and all of it over time', async () => {
  const grants: number[] = []
  for (let tenth = 0; tenth < 3000; tenth += 7) {
    if (await granted('strict', tenth / 10)) grants.push(tenth / 10)
  }
  for (const from of grants) expect(grants.filter((second) => second >= from && second < from + 60).length).toBeLessThanOrEqual(5)
  expect(grants.length).toBeGreaterThanOrEqual(20)
})

it('leaves the reserve to those who ask without one', async () => {
  const asked = []
  for (let n = 0; n < 5; n += 1) asked.push(await granted('reserve', 0, { reserve: 2 }))
  expect(asked.filter(Boolean)).toHaveLength(3)
  expect([await granted('reserve', 0), await granted('reserve', 0), await granted('reserve', 0)]).toEqual([true, true, false])
})

it('counts a replica whose clock is behind, and recovers from a clock that was put back', async () => {
  for (let n = 0; n < 5; n += 1) await granted('skew', 10)
  expect(await granted('skew', 8)).toBe(false)
  expect(await granted('skew', -3600)).toBe(false)
  expect(await granted('skew', -3600 + 62)).toBe(true)
})

it('grants nothing before a block ends, and keeps the later of two ends', async () => {
  await granted('blocked', 0)
  await blockCalls(pool.db, { keyName: 'blocked', until: at(30), reason: 'rate_limited' })
  await blockCalls(pool.db, { keyName: 'blocked', until: at(5), reason: 'rate_limit_spent' })
  expect(await takeCall(pool.db, { keyName: 'blocked', limitPerMinute: 5, reserve: 0, now: at(29) })).toEqual({ ok: false, reason: 'rate_limited', retryAt: at(30) })
  expect(await granted('blocked', 31)).toBe(true)
})

it('tells what is left of the minute', async () => {
  await granted('left', 0)
  await granted('left', 1)
  expect((await remainingCalls(pool.db, 5, at(2))).get('left')).toBe(3)
  expect((await remainingCalls(pool.db, 5, at(90))).get('left')).toBe(5)
})
