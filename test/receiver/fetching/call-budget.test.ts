import { afterAll, beforeAll, expect, it } from 'vitest'
import { createPool, type Pool } from '../../../src/platform/postgres/postgres.ts'
import { timeOf } from '../../../src/platform/postgres/time.ts'
import { sharesOf, takeCall, type Purpose } from '../../../src/receiver/fetching/call-budget.ts'
import { blockCalls } from '../../../src/receiver/fetching/key-health.ts'
import { remainingCalls } from '../../../src/receiver/gauges/call-budgets.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'

let database: TestDatabase
let pool: Pool

beforeAll(async () => {
  database = await createTestDatabase()
  pool = createPool({ url: database.url, max: 8, keepsPlans: true })
})
afterAll(async () => {
  await pool.close()
  await database.drop()
})

const start = Date.parse('2026-03-01T12:00:00.400Z')
const at = (seconds: number) => new Date(start + seconds * 1000)
const now = (seconds: number) => timeOf(() => at(seconds))()

async function granted(
  keyName: string,
  seconds: number,
  { limit = 5, purpose = 'submitting' }: { limit?: number; purpose?: Purpose } = {},
): Promise<boolean> {
  return (await takeCall(pool.db, { keyName, limitPerMinute: limit, purpose, now: now(seconds) })).ok
}

it('grants exactly the limit to many concurrent callers', async () => {
  const purposeOf = (n: number) => (n % 2 === 0 ? 'submitting' : 'completing')
  const wanted = await Promise.all(
    Array.from({ length: 40 }, (_, n) => granted('crowd', 0, { limit: 7, purpose: purposeOf(n) })),
  )
  expect(wanted.filter(Boolean)).toHaveLength(7)
})

it('never grants more than the limit in any 60 s, and all of it over time', async () => {
  const grants: number[] = []
  for (let tenth = 0; tenth < 1500; tenth += 7) {
    if (await granted('strict', tenth / 10)) grants.push(tenth / 10)
  }
  for (const from of grants)
    expect(grants.filter((second) => second >= from && second < from + 60).length).toBeLessThanOrEqual(5)
  expect(grants.length).toBeGreaterThanOrEqual(10)
})

/** Its shares are 12 for submitting, 18 for completing, and 3 of these for trial calls. */
const limit = 30

/** How many of up to so many calls are granted within one second. Asking stops with the first refusal, as the processes do. */
async function grants(keyName: string, purpose: Purpose, most: number, seconds = 0): Promise<number> {
  let count = 0
  while (count < most && (await granted(keyName, seconds, { limit, purpose }))) count += 1
  return count
}

function everyThirdSecond(from: number, until: number): number[] {
  return Array.from({ length: Math.ceil((until - from) / 3) }, (_, n) => from + n * 3)
}

it.each([
  ['submitting', 'completing', 12, 18],
  ['completing', 'submitting', 18, 12],
] as const)('%s at once takes its share, and leaves %s all of the other', async (first, other, share, rest) => {
  expect(await grants(`burst of ${first}`, first, limit)).toBe(share)
  expect(await grants(`burst of ${first}`, other, limit)).toBe(rest)
})

it.each(['submitting', 'completing'] as const)(
  "%s may use the other's idle share, at an even pace, up to the limit",
  async (purpose) => {
    let count = 0
    for (const second of everyThirdSecond(0, 60)) count += await grants(`alone ${purpose}`, purpose, limit, second)
    expect(count).toBe(limit)
  },
)

it.each([
  ['submitting', 'completing', 18],
  ['completing', 'submitting', 12],
] as const)('%s without end gives %s its whole share back within a minute', async (busy, other, share) => {
  const keyName = `back to ${other}`
  for (const second of everyThirdSecond(0, 60)) await grants(keyName, busy, limit, second)
  let count = 0
  for (const second of everyThirdSecond(60, 180)) {
    await grants(keyName, busy, limit, second)
    const got = await grants(keyName, other, limit, second)
    if (second >= 120) count += got
  }
  expect(count).toBe(share)
})

it('completes at least as fast as it submits while both exceed the limit', async () => {
  const counts = { submitting: 0, completing: 0 }
  for (const second of everyThirdSecond(0, 183)) {
    for (const purpose of ['submitting', 'completing'] as const) {
      const count = await grants('both', purpose, limit, second)
      if (second >= 61) counts[purpose] += count
    }
  }
  expect(counts).toEqual({ completing: 36, submitting: 24 })
})

it('grants trial calls at most a tenth, within the share of completing', async () => {
  expect(await grants('trial', 'trial', limit)).toBe(3)
  expect(await grants('trial', 'completing', limit)).toBe(15)
  expect(await grants('trial', 'trial', 1)).toBe(0)
  expect(await grants('trial', 'submitting', limit)).toBe(12)
  expect(await grants('trial', 'trial', 1, 61)).toBe(1)
})

it('leaves either side at least one call, however small the limit', () => {
  const both = [1, 2, 3, 5, 10, 100].map(sharesOf).map(({ submitting, completing }) => [submitting, completing])
  expect(both).toEqual([
    [1, 1],
    [1, 1],
    [1, 2],
    [2, 3],
    [4, 6],
    [40, 60],
  ])
})

it.each<[why: string, Purpose, spent: [seconds: number, Purpose, calls: number][], asked: number, freeAt: number]>([
  [
    'the limit is spent',
    'submitting',
    [
      [0, 'completing', 6],
      [1, 'submitting', 4],
    ],
    10,
    61,
  ],
  [
    'the limit is spent',
    'completing',
    [
      [0, 'submitting', 4],
      [1, 'completing', 6],
    ],
    10,
    61,
  ],
  ['its share is, at once', 'submitting', [[0, 'submitting', 4]], 1, 6],
  [
    'its share is, and the other side was refused',
    'completing',
    [
      [0, 'completing', 6],
      [7, 'completing', 1],
      [8, 'submitting', 4],
    ],
    14,
    61,
  ],
  ['its trial calls are', 'trial', [[5, 'trial', 1]], 10, 66],
])('%s: returns to the second when a call for %s is possible again', async (why, purpose, spent, asked, freeAt) => {
  const keyName = `${why}: ${purpose}`
  const take = (seconds: number, by = purpose) =>
    takeCall(pool.db, { keyName, limitPerMinute: 10, purpose: by, now: now(seconds) })
  for (const [seconds, by, calls] of spent) for (let n = 0; n < calls; n += 1) await take(seconds, by)
  // The clock starts 0.4 s into a second.
  const retryAfterSeconds = expect.closeTo(freeAt - 0.4 - asked)
  expect(await take(asked)).toEqual({ ok: false, reason: 'quota', retryAfterSeconds })
  expect((await take(freeAt - 0.401)).ok).toBe(false)
  expect((await take(freeAt - 0.4)).ok).toBe(true)
})

it('counts calls of a replica with a slow clock, and recovers from a clock set back', async () => {
  for (let n = 0; n < 5; n += 1) await granted('skew', 10)
  expect(await granted('skew', 8)).toBe(false)
  expect(await granted('skew', -3600)).toBe(false)
  expect(await granted('skew', -3600 + 62)).toBe(true)
})

it('grants nothing before a block ends, and keeps the later of two ends', async () => {
  await granted('blocked', 0)
  await blockCalls(pool.db, { keyName: 'blocked', now: now(0), seconds: 30, reason: 'rate_limited' })
  await blockCalls(pool.db, { keyName: 'blocked', now: now(0), seconds: 5, reason: 'rate_limit_spent' })
  expect(
    await takeCall(pool.db, { keyName: 'blocked', limitPerMinute: 5, purpose: 'submitting', now: now(29) }),
  ).toEqual({ ok: false, reason: 'rate_limited', retryAfterSeconds: 1 })
  expect(await granted('blocked', 31)).toBe(true)
})

it('returns the calls left in the minute', async () => {
  await granted('left', 0)
  await granted('left', 1)
  expect((await remainingCalls(pool.db, 5, at(2))).get('left')).toBe(3)
  expect((await remainingCalls(pool.db, 5, at(90))).get('left')).toBe(5)
})
