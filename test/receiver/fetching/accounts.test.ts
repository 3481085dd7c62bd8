import { expect, it, onTestFinished } from 'vitest'
import { createPool } from '../../../src/platform/postgres/postgres.ts'
import { timeOf } from '../../../src/platform/postgres/time.ts'
import { noteAccounts } from '../../../src/receiver/fetching/accounts.ts'
import { takeCall } from '../../../src/receiver/fetching/call-budget.ts'
import { withTestDatabase } from '../../support/database.ts'
import { keysOf, liveKey, sandboxKey } from '../../support/receiver.ts'

const second = { name: 'second', api_key: 'service_live_cccccccccccccccc', signing_secret: 'whsec_second_secret' }
const accounts: Record<string, string> = { live: 'acme', second: 'acme', sandbox: 'other' }

async function stored(keys = [liveKey, second, sandboxKey], limitPerMinute = 10) {
  const { url } = await withTestDatabase()
  const pool = createPool({ url, max: 2 })
  onTestFinished(() => pool.close())
  const { db } = pool
  const nowMs = Date.parse('2026-03-04T03:00:00Z')
  let elapsedMs = 0
  const asked: (string | undefined)[] = []
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
      asked: askedWith,
      keys: () => keysOf(...known),
      limitPerMinute: limit,
      reads: async (_read, name) => {
        asked.push(name)
        await take(String(name))
        const usage = { balance: { credits: 1 }, usage_30d: { requests: 0, credits_spent: 0 } }
        return { status: 200, body: { account_id: accounts[String(name)], ...usage } }
      },
    })
  const granted = async (keyName: string, times: number) => {
    let calls = 0
    for (let n = 0; n < times; n += 1) if ((await take(keyName)).ok) calls += 1
    return calls
  }
  return { note, granted, asked, take, pass: (ms: number) => (elapsedMs += ms) }
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

it('asks once for each account, and takes over another limit', async () => {
  const { note, granted, asked, pass } = await stored()
  await note()
  await note()
  expect(asked).toEqual(['live', 'second', 'sandbox'])
  await note(3)
  pass(120_000)
  expect(await granted('live', 6)).toBe(3)
})

it('asks again when another API key takes the name', async () => {
  const { note, granted, asked, pass } = await stored()
  await note()
  accounts['second'] = 'moved'
  onTestFinished(() => void (accounts['second'] = 'acme'))
  await note(10, [liveKey, { ...second, api_key: 'service_live_dddddddddddddddd' }, sandboxKey])
  expect(asked).toEqual(['live', 'second', 'sandbox', 'second'])
  pass(120_000)
  expect([await granted('live', 12), await granted('second', 12)]).toEqual([10, 10])
})

it('gives a key its own limit until its account is known, and asks for no account with a single key', async () => {
  const { note, granted, asked } = await stored([liveKey])
  await note()
  expect(asked).toEqual([])
  expect(await granted('live', 12)).toBe(12)
})
