import { randomUUID } from 'node:crypto'
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { leaseSeconds } from '../../../src/platform/postgres/lease-keeper.ts'
import { claimDue, createPollKeeper } from '../../../src/receiver/reconciling/poll-claims.ts'
import { reschedule, undoClaim } from '../../../src/receiver/reconciling/polling.ts'
import { preferredServer, type TestDatabase, withTestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { createTestWorker, type TestWorker } from '../../support/worker.ts'

describe('the lease of a poll', () => {
  let database: TestDatabase
  let deps: TestWorker
  let requestId: string
  const start = Date.now()

  beforeEach(async () => {
    database = await withTestDatabase(preferredServer)
    deps = createTestWorker({ databaseUrl: database.url })
    requestId = randomUUID()
    await database.sql`insert into mediadock.requests (request_id, key_name, next_poll_at)
      values (${requestId}, 'live', ${new Date(start)})`
  })
  const claim = async (seconds: number, given = deps) => {
    deps.setNow(new Date(start + seconds * 1000))
    return claimDue(given, { limit: 1, resting: new Set() })
  }
  const nextPollIn = async () => {
    const [row] = await database.sql`select next_poll_at from mediadock.requests where request_id = ${requestId}`
    return (row?.['next_poll_at'].getTime() - start) / 1000
  }

  it('ends soon after its process died, after which only the next claimant writes', async () => {
    const [dead] = await claim(0)
    expect(await claim(leaseSeconds - 1)).toEqual([])
    const [alive] = await claim(leaseSeconds)
    if (!dead || !alive) expect.fail('nothing was claimed')
    const before = await nextPollIn()
    await reschedule(deps, dead, { outcome: 'invalid' })
    expect(await nextPollIn()).toBe(before)
    await reschedule(deps, alive, { outcome: 'invalid' })
    expect(await nextPollIn()).toBeGreaterThan(before)
  })

  it('stays lost when another poll is released', async () => {
    const [dead] = await claim(0)
    const [alive] = await claim(leaseSeconds)
    if (!dead || !alive) expect.fail('nothing was claimed')
    await undoClaim(deps, alive, 'quota')
    const before = await nextPollIn()
    await reschedule(deps, dead, { outcome: 'invalid' })
    expect(await nextPollIn()).toBe(before)
  })

  it('is renewed during the poll, but not if a landing made the request due at once', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    onTestFinished(() => void vi.useRealTimers())
    const held = { ...deps, leases: createPollKeeper(deps) }
    const [one] = await claim(0, held)
    deps.setNow(new Date(start + 5000))
    await vi.advanceTimersByTimeAsync(1000)
    await eventually(async () => (await nextPollIn()) === 5 + leaseSeconds)

    await database.sql`update mediadock.requests set next_poll_at = ${new Date(start + 5000)}`
    await vi.advanceTimersByTimeAsync(1000)
    const [other] = await claim(5)
    expect(other?.claims).toBe(2)
    await one?.endRenewals()
  })
})
