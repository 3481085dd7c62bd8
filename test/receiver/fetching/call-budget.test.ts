import { afterAll, beforeAll, expect, it } from 'vitest'
import { blockCalls, callsFor, remainingCalls, takeCall, type Purpose } from '../../../src/receiver/fetching/call-budget.ts'
import { createPool, type Pool } from '../../../src/runtime/postgres/postgres.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'

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

async function granted(
  keyName: string,
  seconds: number,
  { limit = 5, purpose = 'submitting' }: { limit?: number; purpose?: Purpose } = {},
): Promise<boolean> {
  return (await takeCall(pool.db, { keyName, limitPerMinute: limit, purpose, now: at(seconds) })).ok
}

it('grants exactly the limit to many that ask at once', async () => {
  const wanted = await Promise.all(Array.from({ length: 40 }, () => granted('crowd', 0, { limit: 7 })))
  expect(wanted.filter(Boolean)).toHaveLength(7)
})

it('never grants more than the limit in any 60 s, and all of it over time', async () => {
  const grants: number[] = []
  for (let tenth = 0; tenth < 3000; tenth += 7) {
    if (await granted('strict', tenth / 10)) grants.push(tenth / 10)
  }
  for (const from of grants) expect(grants.filter((second) => second >= from && second < from + 60).length).toBeLessThanOrEqual(5)
  expect(grants.length).toBeGreaterThanOrEqual(20)
})

/** How many of so many calls are granted within one second. */
async function grants(keyName: string, purpose: Purpose, tries: number): Promise<number> {
  let count = 0
  for (let n = 0; n < tries; n += 1) if (await granted(keyName, 0, { limit: 100, purpose })) count += 1
  return count
}

it('leaves a fifth to submits, of the rest something to landing, and gives a tenth to tries at most', async () => {
  expect(await grants('shares', 'trying', 50)).toBe(10)
  expect(await grants('shares', 'reconciling', 100)).toBe(60)
  expect(await grants('shares', 'landing', 100)).toBe(10)
  expect(await grants('shares', 'submitting', 100)).toBe(20)
  expect(await granted('shares', 61, { limit: 100, purpose: 'trying' })).toBe(true)
})

it('gives tries nothing that reconciling may not take either', async () => {
  expect(await grants('late', 'reconciling', 100)).toBe(70)
  expect(await grants('late', 'trying', 1)).toBe(0)
})

it('leaves every purpose at least one call, however small the limit', () => {
  for (const purpose of ['submitting', 'landing', 'reconciling', 'trying'] as const) expect(callsFor(purpose, 1)).toBe(1)
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
  expect(await takeCall(pool.db, { keyName: 'blocked', limitPerMinute: 5, purpose: 'submitting', now: at(29) })).toEqual({
    ok: false,
    reason: 'rate_limited',
    retryAt: at(30),
  })
  expect(await granted('blocked', 31)).toBe(true)
})

it('tells what is left of the minute', async () => {
  await granted('left', 0)
  await granted('left', 1)
  expect((await remainingCalls(pool.db, 5, at(2))).get('left')).toBe(3)
  expect((await remainingCalls(pool.db, 5, at(90))).get('left')).toBe(5)
})
