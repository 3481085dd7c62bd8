import { randomUUID } from 'node:crypto'
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { sql } from '../../../src/platform/postgres/drizzle.ts'
import { leaseSeconds } from '../../../src/platform/postgres/lease-keeper.ts'
import { trackRequest } from '../../../src/receiver/api/track.ts'
import { askForExtraPoll } from '../../../src/receiver/domain/poll-schedule.ts'
import { applyHint } from '../../../src/receiver/landing/hint.ts'
import { landOne } from '../../../src/receiver/landing/land-reports.ts'
import { reportToLand } from '../../../src/receiver/landing/report-to-land.ts'
import { claimDue, createPollKeeper } from '../../../src/receiver/reconciling/poll-claims.ts'
import { endPoll } from '../../../src/receiver/reconciling/polling.ts'
import { preferredServer, type TestDatabase, withTestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { imageResult } from '../../support/provider-stand.ts'
import { reportOf } from '../../support/report.ts'
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
  /** The times of the request, in seconds from the start. */
  const times = async () => {
    const [row] = await database.sql`
      select extract(epoch from next_poll_at)::float8 as next_poll, extract(epoch from poll_leased_until)::float8 as leased
      from mediadock.requests where request_id = ${requestId}`
    const since = (seconds: number) => Math.round(seconds * 1000 - start) / 1000
    return { nextPoll: since(row?.['next_poll']), leasedUntil: since(row?.['leased']) }
  }
  const nextPollIn = async () => (await times()).nextPoll

  it('ends soon after its process died, after which only the next claimant writes', async () => {
    const [dead] = await claim(0)
    expect(await claim(leaseSeconds - 1)).toEqual([])
    const [alive] = await claim(leaseSeconds)
    if (!dead || !alive) expect.fail('nothing was claimed')
    const before = await nextPollIn()
    await endPoll(deps, dead, 'invalid')
    expect(await nextPollIn()).toBe(before)
    await endPoll(deps, alive, 'invalid')
    expect(await nextPollIn()).toBeGreaterThan(before)
  })

  it('stays lost when another poll is released', async () => {
    const [dead] = await claim(0)
    const [alive] = await claim(leaseSeconds)
    if (!dead || !alive) expect.fail('nothing was claimed')
    await endPoll(deps, alive, 'no_call', { detail: 'quota' })
    const before = await nextPollIn()
    await endPoll(deps, dead, 'invalid')
    expect(await nextPollIn()).toBe(before)
  })

  it('is renewed during the poll', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    onTestFinished(() => void vi.useRealTimers())
    const [one] = await claim(0, { ...deps, keepLease: createPollKeeper(deps) })
    deps.setNow(new Date(start + 5000))
    await vi.advanceTimersByTimeAsync(1000)
    await eventually(async () => (await times()).leasedUntil === 5 + leaseSeconds)
    await one?.endRenewals()
  })

  it('leaves the times of polls alone, so that the poll of a dead process keeps its place', async () => {
    await database.sql`update mediadock.requests set doubt_poll_at = next_poll_at`
    await claim(0)
    expect(await database.sql`select from mediadock.requests where next_poll_at = doubt_poll_at`).toHaveLength(1)
    expect(await nextPollIn()).toBe(0)
  })

  it('an extra poll is served by any poll, but not by one that began before it was asked for', async () => {
    const asked = async () =>
      (await database.sql`select doubt_poll_at is not null as asked from mediadock.requests`)[0]?.['asked']
    const ask = (seconds: number) =>
      database.sql`update mediadock.requests set doubt_poll_at = ${new Date(start + seconds * 1000)}`
    await ask(0)
    const [served] = await claim(0)
    await endPoll(deps, served!, 'invalid')
    expect(await asked()).toBe(false)
    const [early] = await claim(600)
    await ask(600)
    await endPoll(deps, early!, 'invalid')
    expect(await asked()).toBe(true)
  })

  it('is made again after a landing that it met, since it may have got no answer', async () => {
    await database.sql`update mediadock.requests set key_source = 'tracked', sandbox = false`
    const [underWay] = await claim(0)
    const report = reportOf({ request_id: requestId, status: 'CANCELED' })
    const origin = { via: 'delivery', source_name: null, reporting_key: 'live', environment: 'live' } as const
    await landOne(deps.db, reportToLand(report, origin, undefined), { now: deps.time(), keys: deps.keys })
    await endPoll(deps, underWay!, 'unreachable')
    expect(await claim(1)).toHaveLength(1)
  })

  it('does not hold a connection while another transaction has locked the request, which is polled again', async () => {
    const [locked] = await claim(0)
    await database.sql.begin(async (tx) => {
      await tx`select from mediadock.requests where request_id = ${requestId} for update`
      await endPoll(deps, locked!, 'running')
      await endPoll(deps, locked!, 'no_call', { detail: 'quota' })
    })
    expect(await claim(leaseSeconds - 1)).toEqual([])
    expect(await claim(leaseSeconds + 1)).toHaveLength(1)
  })

  it('an extra poll that is asked for again during it is made again', async () => {
    const asked = async () =>
      (await database.sql`select doubt_poll_at is not null as asked from mediadock.requests`)[0]?.['asked']
    const ask = () => deps.db.execute(sql`update mediadock.requests r set ${askForExtraPoll(deps.time())}`)
    await database.sql`update mediadock.requests set next_poll_at = null`
    deps.setNow(new Date(start))
    await ask()
    const [early] = await claim(0)
    await ask()
    await endPoll(deps, early!, 'running')
    expect(await asked()).toBe(true)
    const [late] = await claim(61)
    await endPoll(deps, late!, 'running')
    expect(await asked()).toBe(false)
  })

  const news: Record<string, () => Promise<unknown>> = {
    'a webhook landed': async () => {
      const report = reportOf(imageResult(requestId))
      const origin = { via: 'delivery', source_name: null, reporting_key: 'live', environment: 'live' } as const
      const landing = { ...reportToLand(report, origin, undefined), media_complete: false }
      await landOne(deps.db, landing, { now: deps.time(), keys: deps.keys })
    },
    'a hint says that it may have ended': async () => {
      const delivery = { deliveryId: randomUUID(), webhookId: randomUUID(), sourceName: null, keyName: 'live' }
      const hinted = { ...delivery, environment: 'live', claims: undefined } as const
      await applyHint(deps, hinted, { kind: 'hint', jobId: requestId, poll: true })
    },
    'it is tracked with another key': () =>
      trackRequest(
        deps.db,
        { request_id: requestId, key_name: 'sandbox' },
        { environment: 'sandbox', now: deps.time() },
      ),
    'a service tracks it with another key': async () => {
      await database.sql`update mediadock.requests set key_source = 'landed'`
      await database.sql`insert into mediadock.requests (request_id, key_name) values (${requestId}, 'sandbox')
        on conflict do nothing`
    },
  }
  it.each(Object.entries(news))(
    'ends early if %s: the poll writes nothing, and another is made',
    async (_news, tell) => {
      const [early] = await claim(0)
      await tell()
      const [next] = await claim(1)
      if (!early || !next) expect.fail('nothing was claimed')
      await endPoll(deps, early, 'not_found')
      expect(await database.sql`select poll_outcome from mediadock.requests`).toEqual([{ poll_outcome: null }])
      await endPoll(deps, next, 'not_found')
      expect(await database.sql`select poll_outcome from mediadock.requests`).toEqual([{ poll_outcome: 'not_found' }])
    },
  )
})
