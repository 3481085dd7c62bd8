import { randomUUID } from 'node:crypto'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createPool } from '../../../src/platform/postgres/postgres.ts'
import { timeOf } from '../../../src/platform/postgres/time.ts'
import { takeCall } from '../../../src/receiver/fetching/call-budget.ts'
import { noteRecovered, blockRefusedKey, type KeyHealth } from '../../../src/receiver/fetching/key-health.ts'
import { withTestDatabase, usualServers } from '../../support/database.ts'

const start = Date.parse('2026-03-01T12:00:00Z')
const at = (seconds: number) => new Date(start + seconds * 1000)
const now = (seconds: number) => timeOf(() => at(seconds))()

describe.each(usualServers)('a key that is refused (%s)', (server) => {
  async function scene() {
    const { url, sql } = await withTestDatabase(server)
    const { db, close } = createPool({ url, max: 8, keepsPlans: true })
    onTestFinished(close)
    const keyName = `key ${randomUUID()}`
    const take = (seconds: number) =>
      takeCall(db, { keyName, limitPerMinute: 1000, purpose: 'completing', now: now(seconds) })
    const granted = async (seconds: number): Promise<KeyHealth> => {
      const grant = await take(seconds)
      if (!grant.ok) throw new Error(`no call: ${grant.reason}`)
      return grant.health
    }
    return {
      sql,
      take,
      granted,
      refuse: (health: KeyHealth, seconds: number) => blockRefusedKey(db, { keyName, health, now: now(seconds) }),
      recover: (seconds: number) => noteRecovered(db, { keyName, keyNames: [keyName], now: now(seconds) }),
    }
  }

  it('rests for 5 s, doubled up to 300 s, until the first accepted call', async () => {
    const { take, granted, refuse, recover } = await scene()
    let second = 0
    for (const rest of [5, 10, 20, 40, 80, 160, 300, 300]) {
      await refuse(await granted(second), second)
      expect(await take(second + rest - 1)).toEqual({ ok: false, reason: 'unauthorized', retryAfterSeconds: 1 })
      second += rest
    }
    await granted(second)
    await recover(second)
    const health = await granted(second)
    expect(health).toEqual({ refusals: 0, failing: false })
    await refuse(health, second)
    expect(await take(second)).toMatchObject({ retryAfterSeconds: 5 })
  })

  it('rests once for all concurrent calls', async () => {
    const { take, granted, refuse } = await scene()
    const healths = await Promise.all(Array.from({ length: 16 }, () => granted(0)))
    await Promise.all(healths.map((health) => refuse(health, 1)))
    expect(await take(2)).toMatchObject({ reason: 'unauthorized', retryAfterSeconds: 4 })
    expect(await granted(6)).toEqual({ refusals: 1, failing: true })
  })

  it('is tried with one call of any process after its rest, and again if that call never ends', async () => {
    const { take, granted, refuse } = await scene()
    await refuse(await granted(0), 0)
    const grants = await Promise.all(Array.from({ length: 12 }, () => take(5)))
    expect(grants.filter(({ ok }) => ok)).toHaveLength(1)
    expect((await take(14)).ok).toBe(false)
    expect((await take(15)).ok).toBe(true)
  })

  it('keeps a longer pause that the provider demanded', async () => {
    const { sql, take, granted, refuse } = await scene()
    const health = await granted(0)
    await sql`update mediadock.call_budgets set blocked_until = ${at(60)}, blocked_reason = 'rate_limited'`
    await refuse(health, 0)
    expect(await take(10)).toEqual({ ok: false, reason: 'rate_limited', retryAfterSeconds: 50 })
  })
})
