import { describe, expect, it, onTestFinished } from 'vitest'
import { createPool } from '../../../src/platform/postgres/postgres.ts'
import { claimDue, type ClaimRequest, maxInFlight } from '../../../src/provider/webhooks/outbox-claims.ts'
import { usualServers, type TestServer, withTestDatabase } from '../../support/database.ts'
import { moment } from '../support/time.ts'

const now = new Date('2026-01-01T00:00:00Z')

async function setUp(server: TestServer) {
  const database = await withTestDatabase(server)
  const pool = createPool({ url: database.url, max: 1 })
  onTestFinished(() => pool.close())
  const { sql } = database
  /** `each` deliveries to each of `hosts` hosts, due at the same time. */
  const add = async (account: string, { hosts = 1, each = 1, dueAt = now } = {}) => {
    await sql`insert into provider.deliveries (id, account_id, api_key_id, url, host, body, state, due_at, created_at)
      select gen_random_uuid(), ${account}, gen_random_uuid(), 'https://h/', lpad(h::text, 5, '0') || '.example', '{}',
        'pending', ${dueAt}, ${now}
      from generate_series(1, ${hosts}) h, generate_series(1, ${each}) n`
  }
  const claim = (changes: Partial<ClaimRequest> = {}) =>
    claimDue(pool.db, { now: moment(now), leaseSeconds: 0, inFlight: [], walk: {}, ...changes })
  return { sql, add, claim }
}

const under = (attempts: number, account_id: string, host: string) =>
  Array.from({ length: attempts }, () => ({ account_id, host }))

/** By account, or by host, how many were claimed. */
function count<K extends string>(claimed: readonly Record<K, string>[], key: K): Record<string, number> {
  return Object.fromEntries([...Map.groupBy(claimed, (one) => one[key])].map(([name, { length }]) => [name, length]))
}

/** Where a walk continues that was at `walk`. */
const onwards = (walk: Readonly<Record<string, string>>, walked: Record<string, string | null>) =>
  Object.fromEntries(
    Object.entries<string | null>({ ...walk, ...walked }).flatMap(([key, at]) => (at === null ? [] : [[key, at]])),
  )

describe.each(usualServers)('a claim from the outbox, on the %s server', (server) => {
  it('gives a lone account a quarter of the slots, and a host at most eight', async () => {
    const { add, claim } = await setUp(server)
    await add('a', { hosts: 2, each: 20 })
    expect(count((await claim()).claimed, 'host')).toEqual({ '00001.example': 8, '00002.example': 8 })
    await add('b', { hosts: 50 })
    const { claimed } = await claim({ inFlight: under(16, 'a', 'h') })
    // Of 112 free places, and the 16 that one of them holds, 1/(3 + 2) for each.
    expect(count(claimed, 'account_id')).toEqual({ a: 9, b: 22 })
  })

  it('leaves slots for a new account, regardless of the number of accounts before it', async () => {
    const { add, claim } = await setUp(server)
    const inFlight: { account_id: string; host: string }[] = []
    for (let n = 1; n <= 20; n += 1) {
      await add(`account ${n}`, { hosts: 40 })
      const { claimed } = await claim({ inFlight })
      expect(count(claimed, 'account_id')).toHaveProperty(`account ${n}`)
      inFlight.push(...claimed)
    }
  })

  it('serves accounts round-robin when slots are few, continuing after the last claim', async () => {
    const { add, claim } = await setUp(server)
    for (const account of ['a', 'b', 'c']) await add(account, { hosts: 3 })
    const inFlight = Array.from({ length: maxInFlight - 2 }, (_, n) => ({ account_id: `x${n}`, host: `x${n}` }))
    const first = await claim({ inFlight })
    expect(count(first.claimed, 'account_id')).toEqual({ a: 1, b: 1 })
    const second = await claim({ inFlight, walk: onwards({}, first.walked) })
    expect(count(second.claimed, 'account_id')).toEqual({ c: 1 })
  })

  it('keeps to sixteen attempts to a host over all accounts', async () => {
    const { add, claim } = await setUp(server)
    for (const account of ['a', 'b', 'c', 'd']) await add(account, { each: 20 })
    const { claimed } = await claim({ inFlight: under(2, 'a', '00001.example') })
    expect(count(claimed, 'host')).toEqual({ '00001.example': 14 })
    expect(Object.keys(count(claimed, 'account_id'))).toEqual(['a', 'b', 'c', 'd'])
  })

  it('finds the account after one with 60,000 hosts at once', async () => {
    const { add, claim } = await setUp(server)
    await add('greedy', { hosts: 60_000 })
    await add('modest')
    expect(count((await claim()).claimed, 'account_id')).toEqual({ greedy: 25, modest: 1 })
  })

  it('serves 400 hosts of an account round-robin, even with much due at each', async () => {
    const { sql, add, claim } = await setUp(server)
    await add('a', { hosts: 400, each: 15 })
    let walk = {}
    // 32 a claim, of 100 hosts that it looks at.
    for (let round = 0; round < 16; round += 1) walk = onwards(walk, (await claim({ walk })).walked)
    const served = await sql`select from provider.deliveries where attempts > 0 group by host`
    expect(served).toHaveLength(400)
  })
})
