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

it('leaves something to submits and to landing at small rates too', () => {
  const shares = (limit: number) => (['submitting', 'landing', 'reconciling', 'trying'] as const).map((purpose) => callsFor(purpose, limit))
  expect(shares(100)).toEqual([100, 80, 70, 70])
  expect(shares(10)).toEqual([10, 8, 7, 7])
  expect(shares(5)).toEqual([5, 4, 3, 3])
  expect(shares(3)).toEqual([3, 2, 1, 1])
  expect(shares(2)).toEqual([2, 1, 1, 1])
})

it('leaves landing what it was refused in the last minute, so that a backlog does not spend the next one before it', async () => {
  const take = async (seconds: number, purpose: Purpose, tries: number) => {
    let count = 0
    for (let n = 0; n < tries; n += 1) if (await granted('new first', seconds, { limit: 100, purpose })) count += 1
    return count
  }
  expect(await take(0, 'reconciling', 100)).toBe(70)
  expect(await take(30, 'landing', 50)).toBe(10)
  // The 70 are a minute ago; 10 are not, and 40 were refused.
  expect(await take(61, 'reconciling', 100)).toBe(20)
  expect(await take(62, 'landing', 60)).toBe(50)
  // What was refused in vain is forgotten with its minute.
  expect(await take(200, 'reconciling', 100)).toBe(70)
})

it('counts what landing found in memory to be refused', async () => {
  await takeCall(pool.db, { keyName: 'missed', limitPerMinute: 100, purpose: 'landing', now: at(0), missed: 25 })
  await takeCall(pool.db, { keyName: 'missed', limitPerMinute: 100, purpose: 'landing', now: at(1), missed: 25 })
  let count = 0
  while (await granted('missed', 2, { limit: 100, purpose: 'reconciling' })) count += 1
  expect(count).toBe(70 - 50 - 2)
})

it.each<[Purpose, number, number]>([
  ['submitting', 5, 61],
  ['landing', 4, 61],
  ['trying', 1, 66],
])('tells to the second when there is a call for %s again', async (purpose, spent, freeAt) => {
  const keyName = `free for ${purpose}`
  for (let n = 0; n < spent - (purpose === 'trying' ? 1 : 0); n += 1) await granted(keyName, n)
  if (purpose === 'trying') await granted(keyName, 5, { purpose })
  const second = (seconds: number) => new Date(Math.floor(start / 1000) * 1000 + seconds * 1000)
  const refused = await takeCall(pool.db, { keyName, limitPerMinute: 5, purpose, now: at(10) })
  expect(refused).toEqual({ ok: false, reason: 'quota', retryAt: second(freeAt) })
  expect((await takeCall(pool.db, { keyName, limitPerMinute: 5, purpose, now: new Date(second(freeAt).getTime() - 1) })).ok).toBe(false)
  expect((await takeCall(pool.db, { keyName, limitPerMinute: 5, purpose, now: second(freeAt) })).ok).toBe(true)
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
