import { describe, expect, it } from 'vitest'
import { storeDeliveries } from '../../../src/receiver/intake/store.ts'
import { replayDelivery } from '../../../src/receiver/landing/replay.ts'
import { listDeliveries } from '../../../src/receiver/queries/deliveries.ts'
import { findDelivery } from '../../../src/receiver/queries/delivery-detail.ts'
import { readRequest } from '../../../src/receiver/queries/request-detail.ts'
import * as reconciler from '../../../src/receiver/reconciling/reconciler.ts'
import { usualServers, withTestDatabase } from '../../support/database.ts'
import { imageResult } from '../../support/provider-stand.ts'
import { reportOf } from '../../support/report.ts'
import { failed, okImage } from '../../support/webhooks.ts'
import { workOnce } from '../../support/work-once.ts'
import { createTestWorker, newDelivery, store, type TestWorker } from '../../support/worker.ts'

/* The ordinary end of a delivery has no row: nothing else may be taken for it. */

const overdue = { now: new Date(), stuckAfterSeconds: 120 }

/** A worker whose provider knows every request. */
const knowing = (databaseUrl: string): TestWorker =>
  createTestWorker({
    databaseUrl,
    fetchResult: async ({ requestId, keyName }) => ({
      answer: { kind: 'result', report: reportOf(imageResult(requestId)) },
      keyName: keyName ?? 'live',
    }),
  })

it('shows that a delivery landed that was parked until it came again with the key of its request', async () => {
  const { url, sql } = await withTestDatabase()
  const deps = createTestWorker({ databaseUrl: url })
  const { requestId, body } = failed()
  await sql`insert into mediadock.requests (request_id, key_name) values (${requestId}, 'live')`
  const delivery = newDelivery(body)
  await storeDeliveries(deps.db, [{ ...delivery, keyName: 'sandbox', environment: 'sandbox' }])
  deps.setNow(new Date())
  await workOnce(deps)
  expect(await findDelivery(deps.db, delivery.id)).toMatchObject({ state: 'parked' })
  await storeDeliveries(deps.db, [delivery])
  deps.setNow(new Date(deps.clock().getTime() + 5000))
  await workOnce(deps)
  expect(await findDelivery(deps.db, delivery.id)).toMatchObject({ state: 'processed', outcome: 'landed' })
})

describe.each(usualServers)('on %s: a delivery is not shown as the one that landed its request', (server) => {
  it('if a replay took it from the queue after the reconciler had landed the request', async () => {
    const { url, sql } = await withTestDatabase(server)
    const deps = knowing(url)
    const { requestId, body } = okImage()
    await sql`insert into mediadock.requests (request_id, key_name) values (${requestId}, 'live')`
    const delivery = newDelivery(body)
    await storeDeliveries(deps.db, [delivery])
    await reconciler.reconcileOne(deps, requestId)
    deps.setNow(new Date(deps.clock().getTime() + 5000))
    await replayDelivery(deps, delivery.id, { dryRun: false })
    expect(await sql`select from mediadock.inbox`).toEqual([])
    const shown = await findDelivery(deps.db, delivery.id)
    expect(shown).toMatchObject({ state: 'processed', outcome: 'no_effect' })
    expect(shown?.attempts.map(({ outcome }) => outcome)).toEqual(['no_effect'])
    expect((await listDeliveries(deps.db, { outcome: 'landed' })).data).toEqual([])
    // A second replay, of what has an end, takes nothing back and adds nothing to it.
    deps.setNow(new Date(deps.clock().getTime() + 5000))
    await replayDelivery(deps, delivery.id, { dryRun: false })
    expect((await listDeliveries(deps.db, { outcome: 'no_effect' })).data).toHaveLength(1)
  })

  it('if a replay took it from the parked ones', async () => {
    const { url, sql } = await withTestDatabase(server)
    const deps = knowing(url)
    const { requestId, body } = okImage()
    await sql`insert into mediadock.requests (request_id, key_name) values (${requestId}, 'live')`
    const delivery = newDelivery(body)
    // As a release that did not understand it stored it.
    await storeDeliveries(deps.db, [
      { ...delivery, parsed: { kind: 'unreadable', reason: 'unknown_shape', jobId: undefined } },
    ])
    await reconciler.reconcileOne(deps, requestId)
    deps.setNow(new Date(deps.clock().getTime() + 5000))
    await replayDelivery(deps, delivery.id, { dryRun: false })
    expect(await findDelivery(deps.db, delivery.id)).toMatchObject({
      state: 'processed',
      outcome: 'no_effect',
      attempts: [{ outcome: 'no_effect' }],
    })
  })

  it('if the ends of many fill the timeline of a request', async () => {
    const { url, sql } = await withTestDatabase(server)
    const deps = createTestWorker({ databaseUrl: url })
    const { requestId, body } = failed()
    await store(deps.db, [body])
    deps.setNow(new Date())
    await workOnce(deps)
    // 150 more came, and each was replayed: 300 ends, of which a person gets 200.
    await sql`insert into mediadock.deliveries (id, webhook_id, request_id, status, key_name, signed_at, received_at, headers, body)
      select gen_random_uuid(), gen_random_uuid()::text, ${requestId}, 'ERROR', 'live', now(), now() + n * interval '1 s', '{}', ''
      from generate_series(1, 150) n`
    await sql`insert into mediadock.attempts (delivery_id, attempted_at, outcome, detail)
      select id, received_at + again * interval '1 ms', 'no_effect', case again when 1 then 'replay' end
      from mediadock.deliveries, generate_series(0, 1) again where body = ''`
    const request = await readRequest(deps.db, requestId, overdue)
    const landed = request?.timeline.filter((entry) => entry.kind === 'attempt' && entry.attempt.outcome === 'landed')
    expect(landed).toHaveLength(1)
  })
})
