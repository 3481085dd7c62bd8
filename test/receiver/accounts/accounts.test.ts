import { expect, it, onTestFinished } from 'vitest'
import { sql } from '../../../src/platform/postgres/drizzle.ts'
import { createPool } from '../../../src/platform/postgres/postgres.ts'
import { timeOf } from '../../../src/platform/postgres/time.ts'
import { noteAccounts } from '../../../src/receiver/accounts/accounts.ts'
import { noteCreditsRefused } from '../../../src/receiver/accounts/balances.ts'
import { takeCall } from '../../../src/receiver/fetching/call-budget.ts'
import { readBalances } from '../../../src/receiver/gauges/balances.ts'
import { callBudgets, remainingCalls } from '../../../src/receiver/gauges/call-budgets.ts'
import { readSpending } from '../../../src/receiver/queries/costs.ts'
import { withTestDatabase } from '../../support/database.ts'
import { keysOf, liveKey, sandboxKey } from '../../support/receiver.ts'

const second = {
  name: 'second',
  api_key: 'service_live_cccccccccccccccc',
  signing_secret: 'whsec_second_secret',
}
const accounts: Record<string, string> = { live: 'acme', second: 'acme', sandbox: 'other' }

async function stored(keys = [liveKey, second, sandboxKey], limitPerMinute = 10) {
  const { url } = await withTestDatabase()
  const pool = createPool({ url, max: 2, keepsPlans: true })
  onTestFinished(() => pool.close())
  const { db } = pool
  const nowMs = Date.parse('2026-03-04T03:00:00Z')
  let elapsedMs = 0
  const asked: (string | undefined)[] = []
  const answer = { credits: 1, requests: 0, credits_spent: 0 }
  const now = () => new Date(nowMs + elapsedMs)
  const budgets = () => callBudgets(db, now())
  const left = async () => Object.fromEntries(await remainingCalls(db, 100, now()))
  const balances = () => readBalances(db, now())
  const take = (keyName: string) =>
    takeCall(db, {
      keyName,
      limitPerMinute: 100,
      purpose: 'completing',
      now: timeOf(() => new Date(nowMs + elapsedMs))(),
    })
  const askedWith = new Map<string, string>()
  const note = (limit = limitPerMinute, known = keys) =>
    noteAccounts({
      db,
      time: timeOf(() => new Date(nowMs + elapsedMs)),
      asked: askedWith,
      readSpending,
      keys: () => keysOf(...known),
      limitPerMinute: limit,
      reads: async (_read, name) => {
        asked.push(name)
        await take(String(name))
        const { credits, ...usage_30d } = answer
        return {
          status: 200,
          body: { account_id: accounts[String(name)], balance: { credits }, usage_30d },
        }
      },
    })
  const granted = async (keyName: string, times: number) => {
    let calls = 0
    for (let n = 0; n < times; n += 1) if ((await take(keyName)).ok) calls += 1
    return calls
  }
  return {
    db,
    answer,
    balances,
    budgets,
    left,
    note,
    granted,
    asked,
    take,
    pass: (ms: number) => (elapsedMs += ms),
  }
}

it('shares the calls of a minute among the keys of one account, and of no other', async () => {
  const { note, granted, take, pass } = await stored()
  await note()
  pass(120_000)
  expect(await granted('live', 6)).toBe(6)
  expect(await granted('second', 6)).toBe(4)
  expect(await take('second')).toMatchObject({ ok: false, reason: 'quota', retryAfterSeconds: 1 })
  expect(await granted('sandbox', 6)).toBe(6)
  pass(61_000)
  expect(await granted('second', 12)).toBe(10)
})

it('shows the calls that the keys of an account made together, and what they leave of its limit', async () => {
  const { note, granted, pass, budgets, left } = await stored()
  await granted('live', 1)
  expect((await budgets()).get('live')).toMatchObject({ account_id: null, account_calls: null, account_limit: null })
  await note()
  pass(120_000)
  await granted('live', 3)
  await granted('second', 4)
  const account = { account_id: 'acme', account_calls: 7, account_limit: 10 }
  expect((await budgets()).get('live')).toMatchObject({ calls: 3, ...account })
  expect((await budgets()).get('second')).toMatchObject({ calls: 4, ...account })
  const other = { account_id: 'other', account_calls: 0, account_limit: 10 }
  expect((await budgets()).get('sandbox')).toMatchObject(other)
  expect(await left()).toEqual({ live: 3, second: 3, sandbox: 10 })
})

it('fetches the account of each key once and its balance once, and applies a changed limit', async () => {
  const { note, granted, asked, pass } = await stored()
  await note()
  await note()
  expect(asked).toEqual(['live', 'second', 'sandbox', 'live'])
  await note(3)
  pass(120_000)
  expect(await granted('live', 6)).toBe(3)
})

it('fetches the account again if the name gets another API key', async () => {
  const { note, granted, asked, pass } = await stored()
  await note()
  accounts['second'] = 'moved'
  onTestFinished(() => void (accounts['second'] = 'acme'))
  await note(10, [liveKey, { ...second, api_key: 'service_live_dddddddddddddddd' }, sandboxKey])
  expect(asked).toEqual(['live', 'second', 'sandbox', 'live', 'second', 'second'])
  pass(120_000)
  expect([await granted('live', 12), await granted('second', 12)]).toEqual([10, 10])
})

it("uses a key's own limit until its account is known, and fetches no account with a single key", async () => {
  const { note, granted, asked } = await stored([liveKey])
  await note()
  expect(asked).toEqual([])
  expect(await granted('live', 12)).toBe(12)
})

/** Requests of these keys that landed with a cost of 10, tracked so many hours before the first round. */
async function landed({ db }: Awaited<ReturnType<typeof stored>>, keyName: string, ...hoursAgo: number[]) {
  for (const hours of hoursAgo)
    await db.execute(sql`
      insert into mediadock.requests
        (request_id, status, model, key_name, sandbox, cost, media_complete, tracked_at, landed_at, source)
      select gen_random_uuid(), 'CANCELED', 'm', ${keyName}, false, 10, true, at, at, 'webhook'
      from (select '2026-03-04T03:00:00Z'::timestamptz - make_interval(hours => ${hours}::int)) as tracked (at)`)
}

it("fetches an account's balance once an hour, and sums the spending of all its keys in the last hour", async () => {
  const world = await stored()
  const { note, asked, pass, balances } = world
  await landed(world, 'live', 0, 2)
  await landed(world, 'second', 0)
  await landed(world, 'sandbox', 0)
  await note()
  pass(3_500_000)
  await note()
  expect(asked).toHaveLength(4)
  expect(await balances()).toMatchObject({
    accounts: [{ keyName: 'live', credits: 1, spentLastHour: 20 }],
  })
  pass(200_000)
  await note()
  expect(asked.slice(4)).toEqual(['live'])
  expect(await balances()).toMatchObject({ accounts: [{ keyName: 'live', spentLastHour: 0 }] })
  pass(2 * 3_600_000 + 1)
  expect(await balances()).toMatchObject({ accounts: [] })
})

it.each([
  ['nothing where the records cover neither the 30 days nor the account', [1, 2], 3, 40, null],
  ['no difference where they cover the account', [1, 2], 2, 20, 0],
  ['usage above the landed cost', [1, 2], 2, 25, 0.2],
  ['landed cost above the usage', [1, 2], 2, 15, 0.25],
  ['usage above the landed cost where the records cover 30 days', [1, 2, 30 * 24 + 5], 9, 25, 0.2],
])('compares the landed cost of 30 days with the usage: %s', async (_rule, hoursAgo, requests, spent, difference) => {
  const world = await stored()
  await landed(world, 'second', ...hoursAgo)
  Object.assign(world.answer, { requests, credits_spent: spent })
  await world.note()
  expect((await world.balances()).accounts).toEqual([expect.objectContaining({ difference })])
})

it('counts a submit that has not landed neither as spent nor as missing', async () => {
  const world = await stored()
  await landed(world, 'live', 1)
  await world.db.execute(sql`
    insert into mediadock.requests (request_id, model, key_name, sandbox, tracked_at)
    values (gen_random_uuid(), 'm', 'live', false, '2026-03-04T02:59:00Z')`)
  Object.assign(world.answer, { requests: 2, credits_spent: 20 })
  await world.note()
  expect(await world.balances()).toMatchObject({ accounts: [{ difference: 0 }] })
})

it('remembers for an hour that submits of a key were refused for lack of credits', async () => {
  const { db, balances, pass, take } = await stored()
  await take('live')
  await noteCreditsRefused(db, 'live', sql`'2026-03-04T03:00:00Z'::timestamptz`)
  expect((await balances()).refused).toEqual([{ keyName: 'live', at: '2026-03-04T03:00:00.000Z' }])
  pass(3_600_000)
  expect((await balances()).refused).toEqual([])
})
