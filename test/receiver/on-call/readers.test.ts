import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { readProblems } from '../../../src/receiver/on-call/problems.ts'
import { readNow } from '../../../src/receiver/on-call/reading.ts'
import { listAudit } from '../../../src/receiver/queries/audit.ts'
import { readParkedCauses, readQuarantineCauses } from '../../../src/receiver/queries/causes.ts'
import { listGiveUps } from '../../../src/receiver/queries/give-ups.ts'
import { readKeys } from '../../../src/receiver/queries/keys.ts'
import { readMinutes } from '../../../src/receiver/queries/minutes.ts'
import { listReconcileRuns, readReconciler } from '../../../src/receiver/queries/reconciler.ts'
import { readRequest } from '../../../src/receiver/queries/request-detail.ts'
import { audited } from '../../../src/receiver/upkeep/audit.ts'
import { writeMinutes } from '../../../src/receiver/upkeep/minutes.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { imageResult, json, type ProviderStand } from '../../support/provider-stand.ts'
import type { TestReceiver } from '../../support/receiver.ts'
import { deliver, failed, okImage } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

let database: TestDatabase
let stand: ProviderStand
let receiver: TestReceiver

beforeAll(async () => {
  const its = await withReceiver({ stand: true })
  ;({ database, receiver, stand } = its)
  return its.stop
})

const options = () => ({
  now: new Date(),
  stuckAfterSeconds: 120,
  webhookPublicUrl: 'https://hooks.example/webhooks',
  generationApiUrl: 'https://api.example',
  fetchRatePerMinute: 100,
  silentAfterSeconds: 300,
  startedAt: receiver.deps.startedAt,
  keys: receiver.deps.keys(),
})

describe('the reads of the console', () => {
  it('include delivered, refused and parked webhooks', async () => {
    const { db } = receiver.deps
    stand.answer((id, _req, res) => json(res, 200, imageResult(id)))
    const image = okImage()
    const refused = okImage()
    const webhookId = randomUUID()
    await deliver(receiver.webhookUrl, image.body)
    await deliver(receiver.webhookUrl, Buffer.from('nonsense'))
    await deliver(receiver.webhookUrl, refused.body, { webhookId, secret: 'whsec_nobody' })
    await eventually(async () => (await database.sql`select from mediadock.arrivals`).length === 3)
    await eventually(async () => (await database.sql`select from mediadock.quarantine`).length === 1)
    await eventually(
      async () => (await database.sql`select from mediadock.requests where landed_at is not null`).length === 1,
    )
    await receiver.deps.background.reconcileOne(image.requestId)
    await eventually(async () => (await database.sql`select from mediadock.polls`).length === 1)
    const now = new Date()
    await database.sql`truncate mediadock.minutes`
    await writeMinutes(db, { now, stuckAfterSeconds: 120 })

    expect(await readKeys(db, options())).toMatchObject([
      {
        name: 'live',
        configured: true,
        environment: 'live',
        fingerprint: expect.stringMatching(/^[0-9a-f]{8}$/),
        matches: 2,
        still_matches: false,
        calls: 1,
        quota_left: 99,
        account_id: null,
      },
      { name: 'sandbox', environment: 'sandbox', matches: 0, last_match_at: null, quota_left: 100 },
    ])
    expect(await readQuarantineCauses(db)).toMatchObject([{ reason: 'no_matching_secret', count: 1 }])
    expect(await readParkedCauses(db)).toMatchObject([{ reason: 'not_json', count: 1 }])
    // Its address sent something authentic. That is recorded a moment later.
    await eventually(async () => (await listGiveUps(db, new Date())).length === 1)
    expect(await listGiveUps(db, new Date())).toMatchObject([
      {
        id: webhookId,
        request_id: refused.requestId,
        request_status: null,
        reason: 'no_matching_secret',
        attempts_seen: 1,
        attempts_spent: 1,
        given_up: false,
      },
    ])
    const { minutes, process_starts } = await readMinutes(db, {}, new Date(now.getTime() + 60_000))
    const totals: Record<string, number> = {}
    for (const { arrivals } of minutes)
      for (const [what, n] of Object.entries(arrivals)) totals[what] = (totals[what] ?? 0) + n
    expect(totals).toEqual({ accepted: 1, 'parked/not_json': 1, 'refused/no_matching_secret': 1 })
    expect(process_starts).toMatchObject([{ pid: process.pid }])

    const timeline = (await readRequest(db, image.requestId, options()))?.timeline ?? []
    expect(timeline.filter(({ kind }) => kind === 'poll')).toMatchObject([
      { poll: { key_name: 'live', outcome: 'result', detail: 'COMPLETED' } },
    ])

    expect((await readNow(db, options())).recent).toMatchObject({ minutes: 5, arrivals: 3 })
    expect((await readProblems(db, options())).map(({ cause }) => cause)).toEqual([
      'refused:no_matching_secret',
      'parked:not_json',
    ])
  })

  it('count a delivery in the hour in which it was parked, however long ago it arrived', async () => {
    const { db } = receiver.deps
    const parked = async () =>
      (await readProblems(db, options())).flatMap(({ cause, count }) => (cause === 'parked:not_json' ? [count] : []))
    expect(await parked()).toEqual([1])
    await database.sql`update mediadock.deliveries set received_at = now() - interval '1 day' where parked_reason = 'not_json'`
    expect(await parked()).toEqual([])
    await database.sql`insert into mediadock.attempts (delivery_id, attempted_at, outcome)
      select id, now(), 'parked' from mediadock.deliveries where parked_reason = 'not_json'`
    expect(await parked()).toEqual([1])
  })

  it('include the error of the newest parked delivery, even if an older one was tried later', async () => {
    const { db } = receiver.deps
    const park = async (webhookId: string, error: string, minutesAgo: number) => {
      await deliver(receiver.webhookUrl, Buffer.from(webhookId), { webhookId })
      await database.sql`
        with parked as (
          update mediadock.deliveries set parked_reason = 'landing_failed',
            received_at = now() - make_interval(mins => ${minutesAgo}) where webhook_id = ${webhookId} returning id
        )
        insert into mediadock.attempts (delivery_id, attempted_at, outcome, detail)
        select id, now() + make_interval(mins => ${minutesAgo}), 'parked', ${`landing_failed: ${error}`} from parked`
    }
    const [older, newer] = [randomUUID(), randomUUID()]
    await park('older', `no order for ${older}`, 2)
    await park('newer', `no order for ${newer}`, 1)
    const [cause] = (await readParkedCauses(db)).filter(({ reason }) => reason === 'landing_failed')
    expect(cause?.errors).toMatchObject([{ message: `no order for ${newer}`, count: 2 }])
    await database.sql`delete from mediadock.deliveries where parked_reason = 'landing_failed'`
  })

  it('list runs of the reconciler, and count idle ones in one row', async () => {
    const { db, background } = receiver.deps
    stand.answer((id, _req, res) => json(res, 200, imageResult(id)))
    const { requestId } = okImage()
    await database.sql`insert into mediadock.requests (request_id, key_name, tracked_at) values (${requestId}, 'live', now() - interval '1 hour')`
    const { id, run } = await background.reconcileNow()
    expect(run).toMatchObject({ scanned: 1, landed: 1 })
    expect((await listReconcileRuns(db, {})).data).toMatchObject([
      { id, trigger: 'manual', outcome: 'ok', scanned: 1, landed: 1, error: null },
    ])
    expect(await readReconciler(db, options())).toMatchObject({
      silent: false,
      last_run: { id },
      backlog: { due: 0 },
    })
    const later = { ...options(), now: new Date(Date.now() + 301_000) }
    expect(await readReconciler(db, later)).toMatchObject({ silent: true })
  })

  it('list the audit by its filters, newest first', async () => {
    const { db } = receiver.deps
    const done = { via: 'cli', actor: 'me@here', action: 'replay', target: failed().requestId } as const
    await audited(receiver.deps, { ...done, detailOf: () => ({ replayed: 1 }) }, () => Promise.resolve())
    const work = audited(
      { ...receiver.deps },
      { via: 'api', actor: '127.0.0.1', action: 'reconcile', detailOf: () => ({}) },
      () => Promise.reject(new Error('it \0 broke')),
    )
    await expect(work).rejects.toThrow('it \0 broke')
    expect((await listAudit(db, {})).data).toMatchObject([
      { action: 'reconcile', detail: { error: 'it  broke' } },
      { action: 'replay', detail: { replayed: 1 } },
    ])
    expect((await listAudit(db, { via: 'cli' })).data).toHaveLength(1)
    expect((await listAudit(db, { actor: 'nobody' })).data).toHaveLength(0)
  })
})

it('media on hosts that MEDIA_HOSTS lacks are a problem until it lists them', async () => {
  const { body, requestId } = okImage()
  await deliver(receiver.webhookUrl, Buffer.from(body.toString().replaceAll('https://media.test', 'https://cdn.test')))
  await eventually(
    async () => (await database.sql`select from mediadock.media where request_id = ${requestId}`).length > 0,
  )
  const problem = async (...mediaHosts: string[]) => {
    const problems = await readProblems(receiver.deps.db, { ...options(), mediaHosts })
    return problems.find(({ cause }) => cause === 'foreign_host')
  }
  expect(await problem('media.test', 'provider.test')).toMatchObject({
    affected: [requestId],
    text: expect.stringMatching(/^MEDIA_HOSTS does not list cdn\.test, /),
  })
  expect(await problem('media.test', 'provider.test', 'cdn.test')).toBeUndefined()
})
