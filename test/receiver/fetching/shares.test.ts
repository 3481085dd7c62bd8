import { randomUUID } from 'node:crypto'
import { describe, expect, it, onTestFinished } from 'vitest'
import { long } from '../../chaos/length.ts'
import { usualServers } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { imageResult, json } from '../../support/provider-stand.ts'
import { keysOf } from '../../support/receiver.ts'
import { deliver, failed, nowSeconds, okImage } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

const teamA = { name: 'team-a', api_key: 'service_live_aaaaaaaaaaaaaaaa', signing_secret: 'whsec_of_the_team_a' }
const teamB = { name: 'team-b', api_key: 'service_live_bbbbbbbbbbbbbbbb', signing_secret: 'whsec_of_the_team_b' }
const sandbox = { name: 'sandbox', api_key: 'service_test_cccccccccccccccc', signing_secret: 'whsec_sandbox_secret' }
const limit = 30

describe.each(usualServers)("on %s: the holder of one key's secret", (server) => {
  it.each(
    [
      ['one that is used, and followed up', [teamA, teamB, sandbox], true] as const,
      ['one that is retired', [{ ...teamA, retired: true }, teamB, sandbox], false] as const,
      ['one that is used', [teamA, teamB, sandbox], false] as const,
      ['one that is retired, and followed up', [{ ...teamA, retired: true }, teamB, sandbox], true] as const,
    ].slice(0, long ? undefined : 2),
  )(
    '(%s) claims more unknown requests than it has calls, and the other team submits and lands at once',
    async (_what, keys, followsUp) => {
      const settings = {
        keys: keysOf(...keys),
        fetchRatePerMinute: limit,
        webhookPublicUrl: 'https://hooks.test/webhooks',
      }
      const { database, receiver, stand, stop } = await withReceiver({ server, stand: true, settings, followsUp })
      onTestFinished(stop)
      const real = okImage()
      stand.answer((id, req, res) => {
        const isB = req.headers.authorization === `Bearer ${teamB.api_key}`
        if (req.method === 'POST') {
          return json(res, 200, submittedAs(randomUUID()))
        }
        return isB && id === real.requestId
          ? json(res, 200, imageResult(id, 2))
          : json(res, 404, { error: { type: 'x', code: 'not_found', message: 'unknown' } })
      })
      const callsWith = (key: { api_key: string }) =>
        stand.calls.filter(({ authorization }) => authorization === `Bearer ${key.api_key}`).length

      for (let n = 0; n < limit + 3; n += 1)
        await deliver(receiver.webhookUrl, okImage().body, { secret: teamA.signing_secret })
      await eventually(async () => (await database.sql`select from mediadock.inbox`).length === 0)
      await receiver.deps.background.reconcileNow()
      // A minute later, by when all of them are due to be polled again.
      const later = Date.now() + 61_000
      receiver.setNow(new Date(later))
      await receiver.deps.background.reconcileNow()
      await receiver.deps.background.reconcileNow()
      for (const other of [teamB, sandbox]) expect(callsWith(other)).toBeLessThanOrEqual(2 * (limit / 10))

      const started = performance.now()
      const { status, body } = await receiver.deps.submitter.submit({
        idempotency_key: randomUUID(),
        model: 'aurora-image',
        input: {},
        key_name: 'team-b',
      })
      expect({ status, body }).toMatchObject({ status: 202, body: { state: 'submitted', last_error: null } })
      await deliver(receiver.webhookUrl, real.body, { secret: teamB.signing_secret, t: Math.floor(later / 1000) })
      await eventually(async () => {
        if (!followsUp) await receiver.deps.background.reconcileNow()
        return (
          (await database.sql`select from mediadock.results where request_id = ${real.requestId} and media_complete`)
            .length === 1
        )
      })
      expect(performance.now() - started).toBeLessThan(20_000)
    },
  )

  it('cannot exceed the share of completing with many webhooks at once, and submits continue', async () => {
    const settings = { keys: keysOf(teamA), fetchRatePerMinute: 10, webhookPublicUrl: 'https://hooks.test/webhooks' }
    const { database, receiver, stand, stop } = await withReceiver({ server, stand: true, settings })
    onTestFinished(stop)
    for (let n = 0; n < 20; n += 1) await deliver(receiver.webhookUrl, okImage().body, { secret: teamA.signing_secret })
    await eventually(async () => (await database.sql`select from mediadock.inbox`).length === 0)
    await receiver.deps.background.reconcileNow()
    expect(stand.calls).toHaveLength(6)
    const { body } = await receiver.deps.submitter.submit({
      model: 'aurora-image',
      input: {},
      idempotency_key: randomUUID(),
    })
    // The stand knows no models: what counts is that it was called.
    expect(body).toMatchObject({ error: { code: 'not_found' } })
  })

  it('cannot delay completions by submitting beyond its calls', async () => {
    const settings = { keys: keysOf(teamA), fetchRatePerMinute: 10, webhookPublicUrl: 'https://hooks.test/webhooks' }
    const { database, receiver, stand, stop } = await withReceiver({ server, stand: true, settings })
    onTestFinished(stop)
    stand.answer((id, req, res) =>
      req.method === 'POST' ? json(res, 200, submittedAs(randomUUID())) : json(res, 200, imageResult(id)),
    )
    // The clock stands still: a submit that takes a lent call 6 s later would be one call more.
    receiver.setNow(new Date())
    for (let n = 0; n < 12; n += 1)
      await receiver.deps.submitter.submit({ model: 'aurora-image', input: {}, idempotency_key: randomUUID() })
    const landed = [okImage(), okImage(), okImage(), okImage()]
    for (const { body } of landed) await deliver(receiver.webhookUrl, body, { secret: teamA.signing_secret })
    await eventually(
      async () =>
        (await database.sql`select from mediadock.results where landed_at is not null`).length === landed.length,
    )
    await receiver.deps.background.reconcileNow()
    expect(
      await database.sql`select media_complete from mediadock.results where landed_at is not null and not media_complete`,
    ).toEqual([])
    expect(stand.calls).toHaveLength(8)
  })

  describe('of a sandbox key, signing for live requests that still run', () => {
    const start = async (count: number) => {
      const settings = { keys: keysOf(teamA, sandbox), fetchRatePerMinute: limit, stuckAfterSeconds: 600 }
      const { database, receiver, stand, stop } = await withReceiver({ server, stand: true, settings })
      onTestFinished(stop)
      stand.answer((id, _req, res) =>
        json(res, 202, { request_id: id, status: 'IN_PROGRESS', queue_position: null, progress: 40, logs: [] }),
      )
      const requestIds = Array.from({ length: count }, () => randomUUID())
      for (const id of requestIds)
        await database.sql`insert into mediadock.requests (request_id, key_name) values (${id}, 'team-a')`
      const forgeEach = async (t = nowSeconds()) => {
        for (const id of requestIds)
          await deliver(receiver.webhookUrl, failed(id).body, { secret: sandbox.signing_secret, t })
        await eventually(async () => (await database.sql`select from mediadock.inbox`).length === 0)
        await receiver.deps.background.reconcileNow()
      }
      const schedule = () =>
        database.sql`select distinct next_poll_at, doubt_poll_at is null as settled from mediadock.requests`
      const callsOfA = () =>
        stand.calls.filter(({ authorization }) => authorization === `Bearer ${teamA.api_key}`).length
      return { receiver, forgeEach, schedule, callsOfA }
    }

    it('causes polls with at most a tenth of the calls of their key', async () => {
      const { forgeEach, callsOfA } = await start(20)
      await forgeEach()
      await forgeEach()
      expect(callsOfA()).toBe(limit / 10)
    })

    it('causes a poll of a request once a minute, and never changes its schedule', async () => {
      const { receiver, forgeEach, schedule, callsOfA } = await start(1)
      for (let n = 0; n < 5; n += 1) await forgeEach()
      expect(callsOfA()).toBe(1)
      const later = Date.now() + 61_000
      receiver.setNow(new Date(later))
      for (let n = 0; n < 3; n += 1) await forgeEach(Math.floor(later / 1000))
      expect(callsOfA()).toBe(2)
      receiver.setNow(new Date(later + 61_000))
      await receiver.deps.background.reconcileNow()
      expect(callsOfA()).toBe(3)
      expect(await schedule()).toEqual([{ next_poll_at: null, settled: true }])
    })
  })
})

/** The answer to a submit. */
function submittedAs(requestId: string) {
  const url = 'https://api.test/v1/requests/x'
  const links = { status_url: url, response_url: url, cancel_url: url }
  return { request_id: requestId, status: 'IN_QUEUE', queue_position: 0, ...links, cost: 4 }
}
