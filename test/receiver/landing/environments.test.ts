import { randomUUID } from 'node:crypto'
import type http from 'node:http'
import type postgres from 'postgres'
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { deliveryId } from '../../../src/receiver/domain/delivery.ts'
import { verifyQuarantine } from '../../../src/receiver/on-call/verify-quarantine.ts'
import { type TestDatabase, usualServers } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { imageResult, json, type ProviderStand } from '../../support/provider-stand.ts'
import { keysOf, liveKey, sandboxKey, type TestReceiver } from '../../support/receiver.ts'
import { deliver, failed, okAudio, okImage, okVideo } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { call } from '../api/calls.ts'

/*
 * The powers of an attacker who holds only the secret of a sandbox key.
 * The provider is one that knows a request with the keys of its environment only.
 */

const oldKey = { name: 'old', signing_secret: 'whsec_old_secret', retired: true }

let database: TestDatabase
let stand: ProviderStand
let receiver: TestReceiver

const notFound = (res: http.ServerResponse) =>
  json(res, 404, { error: { type: 'invalid_request_error', code: 'not_found', message: 'unknown' } })
const isLive = (req: http.IncomingMessage) => req.headers.authorization?.startsWith('Bearer service_live_') === true

describe.each(usualServers)('on %s: a webhook signed with the secret of a sandbox key', (server) => {
  beforeAll(async () => {
    const its = await withReceiver({ server, stand: true, settings: { keys: keysOf(liveKey, sandboxKey, oldKey) } })
    ;({ database, receiver, stand } = its)
    return its.stop
  })
  beforeEach(() => stand.answer((id, req, res) => (isLive(req) ? json(res, 200, imageResult(id, 3)) : notFound(res))))

  const rowOf = async (requestId: string) => {
    const [row] =
      await database.sql`select status, source, cost, key_name, coalesce(sandbox, signed_sandbox) as sandbox, media_complete, confirmed_at is not null as confirmed,
      (select count(*)::int from mediadock.media m where m.request_id = r.request_id) as media from mediadock.requests r where request_id = ${requestId}`
    return row
  }
  const settle = async (body: Buffer, secret: string): Promise<string> => {
    const webhookId = randomUUID()
    await deliver(receiver.webhookUrl, body, { webhookId, secret })
    return eventually(async () => {
      const [row] =
        await database.sql`select d.id from mediadock.deliveries d where webhook_id = ${webhookId} and not exists (select from mediadock.inbox where delivery_id = d.id)`
      return row?.['id']
    })
  }
  const stateOf = async (id: string) =>
    (await database.sql`select flags, parked_reason from mediadock.deliveries where id = ${id}`)[0]
  const track = (requestId: string, keyName: string | null) =>
    database.sql`insert into mediadock.requests (request_id, key_name) values (${requestId}, ${keyName})`
  const reconcile = async () => {
    receiver.setNow(new Date(Date.now() + 600_000))
    await receiver.deps.background.reconcileNow()
    receiver.setNow(undefined)
  }

  describe.each<[string, string | null | undefined]>([
    ['no service tracked', undefined],
    ['is tracked by its id alone', null],
    ['is tracked with a key that is not configured', 'elsewhere'],
  ])('for a request that %s', (_what, keyName) => {
    const prepare = async () => {
      const requestId = randomUUID()
      if (keyName !== undefined) await track(requestId, keyName)
      return requestId
    }

    it.each([
      ['an ERROR', failed, 'FAILED'],
      ['audio', okAudio, 'COMPLETED'],
      ['a picture', okImage, 'COMPLETED'],
    ])('lands %s only until the authentic live one arrives', async (_kind, forge, forgedStatus) => {
      const requestId = await prepare()
      const forged = await settle(forge(requestId).body, sandboxKey.signing_secret)
      expect(await rowOf(requestId)).toMatchObject({ status: forgedStatus, sandbox: true })
      await settle(okVideo(requestId).body, liveKey.signing_secret)
      expect(await rowOf(requestId)).toMatchObject({ status: 'COMPLETED', sandbox: false, media: 1 })
      await reconcile()
      expect(await rowOf(requestId)).toMatchObject({
        status: 'COMPLETED',
        sandbox: false,
        confirmed: true,
        media: 3,
        cost: '4',
        media_complete: true,
      })
      expect(await stateOf(forged)).toEqual({
        flags: forgedStatus === 'FAILED' ? ['contradiction', 'key_mismatch'] : ['key_mismatch'],
        parked_reason: null,
      })
    })

    it('lands only until the reconciler gets the result with a live key', async () => {
      const requestId = await prepare()
      const forged = await settle(failed(requestId).body, sandboxKey.signing_secret)
      await reconcile()
      expect(await rowOf(requestId)).toMatchObject({
        status: 'COMPLETED',
        source: 'reconciler',
        sandbox: false,
        key_name: keyName ?? 'live',
        confirmed: true,
        media: 3,
      })
      expect(await stateOf(forged)).toEqual({ flags: ['contradiction', 'key_mismatch'], parked_reason: null })
    })

    it('is parked after the live one arrived, and the request is polled', async () => {
      const requestId = await prepare()
      await settle(failed(requestId).body, liveKey.signing_secret)
      const forged = await settle(okAudio(requestId).body, sandboxKey.signing_secret)
      expect(await stateOf(forged)).toEqual({ flags: ['key_mismatch'], parked_reason: 'key_mismatch' })
      expect(await rowOf(requestId)).toMatchObject({ status: 'FAILED', sandbox: false, confirmed: false })
      await reconcile()
      expect(await rowOf(requestId)).toMatchObject({ status: 'COMPLETED', confirmed: true, media: 3 })
    })

    it('and one of a retired key without known environment contradict each other like two of one environment', async () => {
      stand.answer((_id, _req, res) => notFound(res))
      const requestId = await prepare()
      await settle(failed(requestId).body, sandboxKey.signing_secret)
      const other = await settle(okAudio(requestId).body, oldKey.signing_secret)
      expect(await rowOf(requestId)).toMatchObject({ status: 'FAILED', sandbox: true })
      expect(await stateOf(other)).toEqual({ flags: ['contradiction'], parked_reason: null })
      stand.answer((id, req, res) => (isLive(req) ? json(res, 200, imageResult(id)) : notFound(res)))
      await reconcile()
      expect(await rowOf(requestId)).toMatchObject({ status: 'COMPLETED', sandbox: false, confirmed: true })
    })
  })

  it('and an ERROR of a retired key, with which the request was tracked, is polled at once', async () => {
    const requestId = randomUUID()
    await track(requestId, 'old')
    await settle(failed(requestId).body, oldKey.signing_secret)
    const [row] =
      await database.sql`select next_poll_at <= now() as due from mediadock.requests where request_id = ${requestId}`
    expect(row).toEqual({ due: true })
  })

  it('lands if the request is tracked with a sandbox key, and a live one is parked', async () => {
    const requestId = randomUUID()
    await track(requestId, 'sandbox')
    const live = await settle(okAudio(requestId).body, liveKey.signing_secret)
    await settle(failed(requestId).body, sandboxKey.signing_secret)
    expect(await rowOf(requestId)).toMatchObject({ status: 'FAILED', sandbox: true })
    expect(await stateOf(live)).toMatchObject({ parked_reason: 'key_mismatch' })
  })

  it('lands permanently if a sandbox key knows the result', async () => {
    stand.answer((id, req, res) => (isLive(req) ? notFound(res) : json(res, 200, imageResult(id))))
    const requestId = randomUUID()
    await settle(okImage(requestId).body, sandboxKey.signing_secret)
    await reconcile()
    const live = await settle(failed(requestId).body, liveKey.signing_secret)
    expect(await rowOf(requestId)).toMatchObject({ status: 'COMPLETED', sandbox: true, confirmed: true })
    expect(await stateOf(live)).toMatchObject({ parked_reason: 'key_mismatch' })
  })

  it('is corrected by the runbook: correct the key, then replay', async () => {
    const requestId = randomUUID()
    await call(receiver, 'POST /api/requests', { body: { request_id: requestId, key_name: 'sandbox' } })
    await settle(failed(requestId).body, sandboxKey.signing_secret)
    const live = await settle(okAudio(requestId).body, liveKey.signing_secret)
    expect(await stateOf(live)).toMatchObject({ parked_reason: 'key_mismatch' })

    const corrected = await call(receiver, 'POST /api/requests', { body: { request_id: requestId, key_name: 'live' } })
    expect(corrected).toMatchObject({ status: 200, json: { key_name: 'live', sandbox: false } })
    expect(await call(receiver, `POST /api/deliveries/${live}/replay`, { body: {} })).toMatchObject({
      status: 200,
      json: { replayed: 1 },
    })
    expect(await rowOf(requestId)).toMatchObject({ status: 'COMPLETED', sandbox: false, key_name: 'live', media: 1 })
    expect(await stateOf(live)).toMatchObject({ parked_reason: null })
  })

  it('is corrected by correcting the key alone: deliveries parked for the key land', async () => {
    const requestId = randomUUID()
    await call(receiver, 'POST /api/requests', { body: { request_id: requestId, key_name: 'sandbox' } })
    const live = await settle(okAudio(requestId).body, liveKey.signing_secret)
    expect(await stateOf(live)).toMatchObject({ parked_reason: 'key_mismatch' })
    await call(receiver, 'POST /api/requests', { body: { request_id: requestId, key_name: 'live' } })
    await eventually(async () => (await rowOf(requestId))?.['status'] === 'COMPLETED')
    expect(await stateOf(live)).toMatchObject({ parked_reason: null })
  })

  it('gets metadata and key from a late tracking, and its request is polled at once', async () => {
    const requestId = randomUUID()
    await settle(failed(requestId).body, sandboxKey.signing_secret)
    await database.sql`insert into mediadock.requests (request_id, key_name, metadata) values (${requestId}, 'live', '{"order": 3}') on conflict do nothing`
    await receiver.deps.background.reconcileNow()
    expect(await rowOf(requestId)).toMatchObject({
      status: 'COMPLETED',
      key_name: 'live',
      sandbox: false,
      confirmed: true,
      media: 3,
    })
    const calls = stand.calls.filter(({ path }) => path.endsWith(requestId))
    expect(calls.map(({ authorization }) => authorization)).toEqual([`Bearer ${liveKey.api_key}`])
    expect((await database.sql`select metadata from mediadock.results where request_id = ${requestId}`)[0]).toEqual({
      metadata: { order: 3 },
    })
  })

  it('is flagged as a contradiction on a replay that ends its parking', async () => {
    const requestId = randomUUID()
    const late = await settle(okAudio(requestId).body, sandboxKey.signing_secret)
    await settle(failed(requestId).body, liveKey.signing_secret)
    await database.sql`update mediadock.deliveries set flags = '{}', parked_reason = 'landing_failed', environment = 'live'
      where id = ${late}`
    await call(receiver, `POST /api/deliveries/${late}/replay`, { body: {} })
    expect(await stateOf(late)).toEqual({ flags: ['contradiction'], parked_reason: null })
  })

  it.each(['before', 'after'])('that came %s the result is confirmed is closed by a replay', async (when) => {
    const requestId = randomUUID()
    await track(requestId, 'live')
    const before = when === 'before' ? await settle(okImage(requestId).body, sandboxKey.signing_secret) : undefined
    await reconcile()
    const forged = before ?? (await settle(okImage(requestId).body, sandboxKey.signing_secret))
    const row = await rowOf(requestId)
    expect(row).toMatchObject({ status: 'COMPLETED', confirmed: true, sandbox: false })
    for (const [dry_run, parked_reason] of [
      [true, 'key_mismatch'],
      [false, null],
    ]) {
      const replayed = await call(receiver, `POST /api/deliveries/${forged}/replay`, { body: { dry_run } })
      expect(replayed).toMatchObject({ status: 200, json: { changes: [] } })
      expect(await stateOf(forged)).toEqual({ flags: ['key_mismatch'], parked_reason })
    }
    expect(await rowOf(requestId)).toEqual(row)
  })

  describe('that is removed or retired afterwards', () => {
    const trackedLive = async () => {
      const requestId = randomUUID()
      await track(requestId, 'live')
      return requestId
    }
    const setKeys = (...keys: object[]) => receiver.setKeys(keysOf(...keys))
    const expectParked = async (requestId: string, id: string) => {
      expect(await rowOf(requestId)).toMatchObject({ status: 'IN_QUEUE', confirmed: false })
      expect(await stateOf(id)).toEqual({ flags: ['key_mismatch'], parked_reason: 'key_mismatch' })
    }
    afterEach(() => receiver.setKeys(keysOf(liveKey, sandboxKey, oldKey)))

    it.each([
      ['removed', [liveKey]],
      [
        'retired without its api_key',
        [liveKey, { name: 'sandbox', signing_secret: sandboxKey.signing_secret, retired: true }],
      ],
      ['replaced by a live key of the same name', [liveKey, { ...sandboxKey, api_key: 'service_live_reused' }]],
    ])('stays parked on a replay once the key is %s', async (_how, keys) => {
      const requestId = await trackedLive()
      const forged = await settle(failed(requestId).body, sandboxKey.signing_secret)
      setKeys(...keys)
      for (const dry_run of [true, false]) {
        const replayed = await call(receiver, `POST /api/deliveries/${forged}/replay`, { body: { dry_run } })
        expect(replayed).toMatchObject({ status: 200, json: { changes: [] } })
      }
      await expectParked(requestId, forged)
    })

    it('is parked for its key on a replay, although a failure had parked it since it was flagged', async () => {
      const requestId = await trackedLive()
      const forged = await settle(failed(requestId).body, sandboxKey.signing_secret)
      await database.sql`update mediadock.deliveries set parked_reason = 'landing_failed' where id = ${forged}`
      await call(receiver, `POST /api/deliveries/${forged}/replay`, { body: {} })
      await expectParked(requestId, forged)
    })

    it.each(['before', 'after'])(
      "changes nothing %s the live webhook if the live key's name now belongs to a sandbox key",
      async (when) => {
        const requestId = randomUUID()
        await call(receiver, 'POST /api/requests', { body: { request_id: requestId, key_name: 'live' } })
        if (when === 'after') await settle(okAudio(requestId).body, liveKey.signing_secret)
        const before = await rowOf(requestId)
        setKeys({ ...liveKey, name: 'live-2' }, { ...sandboxKey, name: 'live' })
        const forged = await settle(failed(requestId).body, sandboxKey.signing_secret)
        expect(await rowOf(requestId)).toEqual(before)
        expect(await stateOf(forged)).toEqual({ flags: ['key_mismatch'], parked_reason: 'key_mismatch' })
        await settle(okAudio(requestId).body, liveKey.signing_secret)
        expect(await rowOf(requestId)).toMatchObject({ status: 'COMPLETED', sandbox: false })
      },
    )

    it('is parked if it waited behind a lock while the key was removed', async () => {
      const requestId = await trackedLive()
      const webhookId = randomUUID()
      await database.sql.begin(async (tx) => {
        await tx`select from mediadock.requests where request_id = ${requestId} for update`
        await deliver(receiver.webhookUrl, failed(requestId).body, { webhookId, secret: sandboxKey.signing_secret })
        await eventually(async () => (await tx`select from mediadock.inbox where trouble is not null`).length > 0)
        setKeys(liveKey)
      })
      const id = await eventually(async () => {
        const [row] =
          await database.sql`select id from mediadock.deliveries d where webhook_id = ${webhookId} and not exists (select from mediadock.inbox where delivery_id = d.id)`
        return row?.['id']
      })
      await expectParked(requestId, id)
    })

    it('is parked if it arrived after the key was retired without its api_key', async () => {
      const requestId = await trackedLive()
      const forged = await settle(failed(requestId).body, oldKey.signing_secret)
      await expectParked(requestId, forged)
      await reconcile()
      expect(await rowOf(requestId)).toMatchObject({ status: 'COMPLETED', confirmed: true, media: 3 })
    })

    it('lands if the request was tracked with the same key before it was retired', async () => {
      const requestId = randomUUID()
      await call(receiver, 'POST /api/requests', { body: { request_id: requestId, key_name: 'live' } })
      setKeys({ name: 'live', signing_secret: liveKey.signing_secret, retired: true }, sandboxKey)
      const id = await settle(failed(requestId).body, liveKey.signing_secret)
      expect(await rowOf(requestId)).toMatchObject({ status: 'FAILED', sandbox: false })
      expect(await stateOf(id)).toEqual({ flags: [], parked_reason: null })
    })
  })

  describe('and then again with the secret of the right key', () => {
    const { signing_secret: forger } = sandboxKey
    const { signing_secret: owner } = liveKey
    const send = async (body: Buffer, webhookId: string, secret: string) =>
      (await deliver(receiver.webhookUrl, body, { webhookId, secret })).json
    const expectLanded = async (requestId: string) => {
      await eventually(async () => (await rowOf(requestId))?.['status'] === 'FAILED')
      expect(await rowOf(requestId)).toMatchObject({ sandbox: false, confirmed: false })
      const rows = await eventually(async () => {
        const found =
          await database.sql`select key_name, environment, parked_reason from mediadock.deliveries d where request_id = ${requestId}
          and not exists (select from mediadock.inbox where delivery_id = d.id)`
        return found.length > 0 && found
      })
      expect(rows).toEqual([{ key_name: 'live', environment: 'live', parked_reason: null }])
    }
    type Forged = { requestId: string; webhookId: string; body: Buffer; parkedReason: string | null }
    const storeForged = (tx: postgres.ISql, { requestId, webhookId, body, parkedReason }: Forged) =>
      tx`insert into mediadock.deliveries
          (id, webhook_id, request_id, status, key_name, environment, signed_at, received_at, headers, body, parked_reason)
        values (${deliveryId(webhookId, body)}, ${webhookId}, ${requestId}, 'ERROR', 'sandbox', 'sandbox', now(), now(), '{}',
          ${body}, ${parkedReason})`
    const trackedLive = async () => {
      const requestId = randomUUID()
      await track(requestId, 'live')
      return { requestId, webhookId: randomUUID(), body: failed(requestId).body }
    }

    it('is no longer parked, and lands', async () => {
      const { requestId, webhookId, body } = await trackedLive()
      expect(await send(body, webhookId, forger)).toEqual({ status: 'accepted' })
      await eventually(
        async () =>
          (
            await database.sql`select from mediadock.deliveries where request_id = ${requestId} and parked_reason = 'key_mismatch'`
          ).length > 0,
      )
      expect(await send(body, webhookId, owner)).toEqual({ status: 'duplicate' })
      await expectLanded(requestId)
      expect(await send(body, webhookId, forger)).toEqual({ status: 'duplicate' })
      await expectLanded(requestId)
    })

    it('lands while the first still waits behind a lock', async () => {
      const { requestId, webhookId, body } = await trackedLive()
      await database.sql.begin(async (tx) => {
        await tx`select from mediadock.requests where request_id = ${requestId} for update`
        expect(await send(body, webhookId, forger)).toEqual({ status: 'accepted' })
        expect(await send(body, webhookId, owner)).toEqual({ status: 'duplicate' })
        expect(await send(body, webhookId, forger)).toEqual({ status: 'duplicate' })
      })
      await expectLanded(requestId)
    })

    it('lands after the first landed, because the request was not tracked', async () => {
      const requestId = randomUUID()
      const { body } = failed(requestId)
      const webhookId = randomUUID()
      await send(body, webhookId, forger)
      await eventually(async () => (await rowOf(requestId))?.['sandbox'] === true)
      expect(await send(body, webhookId, owner)).toEqual({ status: 'duplicate' })
      await eventually(async () => (await rowOf(requestId))?.['sandbox'] === false)
      await expectLanded(requestId)
    })

    it.each<[string, 'accepted' | 'duplicate', (tx: postgres.ISql, id: string) => Promise<unknown>]>([
      [
        'parks',
        'duplicate',
        (tx, id) => tx`update mediadock.deliveries set parked_reason = 'key_mismatch' where id = ${id}`,
      ],
      ['discards', 'accepted', (tx, id) => tx`delete from mediadock.deliveries where id = ${id}`],
    ])('lands while a transaction that %s the first is open', async (_what, status, end) => {
      const { requestId, webhookId, body } = await trackedLive()
      const id = deliveryId(webhookId, body)
      await storeForged(database.sql, { requestId, webhookId, body, parkedReason: null })
      await database.sql`insert into mediadock.inbox (delivery_id, due_at, claims)
        values (${id}, now() + interval '300 s', 1)`
      const { sent } = await database.sql.begin(async (tx) => {
        await tx`delete from mediadock.inbox where delivery_id = ${id}`
        const sending = send(body, webhookId, owner)
        // Calls are answered in order, so the first lookup has ended by then.
        await send(failed().body, randomUUID(), owner)
        await end(tx, id)
        return { sent: sending }
      })
      expect(await sent).toEqual({ status })
      await expectLanded(requestId)
    })

    it('lands while another process stores the first', async () => {
      const { requestId, webhookId, body } = await trackedLive()
      const { sent } = await database.sql.begin(async (tx) => {
        await storeForged(tx, { requestId, webhookId, body, parkedReason: 'key_mismatch' })
        const sending = send(body, webhookId, owner)
        await eventually(
          async () => (await tx`select from pg_locks where not granted and locktype = 'transactionid'`).length > 0,
        )
        return { sent: sending }
      })
      expect(await sent).toEqual({ status: 'duplicate' })
      await expectLanded(requestId)
    })

    it('lands if both arrive at the same instant', async () => {
      const { requestId, webhookId, body } = await trackedLive()
      await Promise.all([send(body, webhookId, forger), send(body, webhookId, owner)])
      await expectLanded(requestId)
    })
  })

  it('is polled for again after the request ended, if it still ran at the first poll', async () => {
    stand.answer((id, _req, res) =>
      json(res, 202, { request_id: id, status: 'IN_PROGRESS', queue_position: null, progress: 40, logs: [] }),
    )
    const requestId = randomUUID()
    await track(requestId, 'live')
    await settle(okAudio(requestId).body, sandboxKey.signing_secret)
    await receiver.deps.background.reconcileNow()
    await settle(failed(requestId).body, liveKey.signing_secret)
    expect(await rowOf(requestId)).toMatchObject({ status: 'FAILED', confirmed: false })
    stand.answer((id, _req, res) => json(res, 200, imageResult(id, 3)))
    await reconcile()
    expect(await rowOf(requestId)).toMatchObject({ status: 'COMPLETED', confirmed: true })
  })

  it('cannot fill the disk for one request: only the oldest few stay parked', async () => {
    stand.answer((_id, _req, res) => notFound(res))
    const requestId = randomUUID()
    await track(requestId, 'live')
    const ids: string[] = []
    for (let n = 0; n < 19; n += 1) {
      const webhookId = randomUUID()
      const answer = await deliver(receiver.webhookUrl, failed(requestId).body, {
        webhookId,
        secret: sandboxKey.signing_secret,
      })
      expect(answer.json).toEqual({ status: 'accepted' })
      ids.push(deliveryId(webhookId, failed(requestId).body))
      await eventually(async () => (await database.sql`select from mediadock.inbox`).length === 0)
    }
    const kept =
      await database.sql`select id, parked_reason from mediadock.deliveries where request_id = ${requestId} order by received_at`
    expect(kept).toEqual(ids.slice(0, 16).map((id) => ({ id, parked_reason: 'key_mismatch' })))
    expect(await database.sql`select from mediadock.attempts where delivery_id = any(${ids})`).toHaveLength(16)
    // Its own webhook still lands.
    await settle(okAudio(requestId).body, liveKey.signing_secret)
    expect(await rowOf(requestId)).toMatchObject({ status: 'COMPLETED', sandbox: false })
  })

  it('keeps its environment when accepted from the quarantine', async () => {
    const requestId = randomUUID()
    await track(requestId, 'live')
    const webhookId = randomUUID()
    const secret = 'whsec_of_a_new_sandbox_key'
    await deliver(receiver.webhookUrl, failed(requestId).body, { webhookId, secret })
    await eventually(
      async () => (await database.sql`select from mediadock.quarantine where webhook_id = ${webhookId}`).length > 0,
    )
    const keys = keysOf(liveKey, { name: 'new', api_key: 'service_test_new', signing_secret: secret })
    await verifyQuarantine({ ...receiver.deps, keys: () => keys })
    await eventually(
      async () =>
        (
          await database.sql`select from mediadock.deliveries where webhook_id = ${webhookId} and parked_reason = 'key_mismatch'`
        ).length > 0,
    )
    expect(await rowOf(requestId)).toMatchObject({ status: 'IN_QUEUE' })
  })
})
