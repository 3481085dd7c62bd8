import { randomUUID } from 'node:crypto'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { sql } from '../../../src/platform/postgres/drizzle.ts'
import { replayDelivery } from '../../../src/receiver/landing/replay.ts'
import { verifyQuarantine } from '../../../src/receiver/on-call/verify-quarantine.ts'
import { ensurePartitions } from '../../../src/receiver/upkeep/arrival-partitions.ts'
import { pruneOnce, pruningTime } from '../../../src/receiver/upkeep/retention.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { imageResult, json, type ProviderStand } from '../../support/provider-stand.ts'
import { keysOf, liveKey, sandboxKey, type TestReceiver } from '../../support/receiver.ts'
import { deliver, failed, nowSeconds, okAudio, okImage } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

let database: TestDatabase
let stand: ProviderStand
let receiver: TestReceiver

beforeAll(async () => {
  const its = await withReceiver({ stand: true })
  ;({ database, receiver, stand } = its)
  return its.stop
})
beforeEach(() => stand.answer((id, _req, res) => json(res, 200, imageResult(id, 2))))

async function idOf(webhookId: string): Promise<string> {
  return eventually(async () => {
    const [row] = await database.sql`select id from mediadock.deliveries d where webhook_id = ${webhookId}
      and not exists (select from mediadock.inbox where delivery_id = d.id)`
    return row?.['id']
  })
}

/** All that a reader or an on-call could see change. */
async function state(): Promise<string> {
  const tables = ['requests', 'media', 'deliveries', 'inbox', 'attempts', 'quarantine']
  const rows = await Promise.all(
    tables.map(
      (table) =>
        database.sql`select md5(coalesce(string_agg(t::text, '|' order by t::text), '')) as sum from ${database.sql(`mediadock.${table}`)} t`,
    ),
  )
  return rows.map(([row]) => row?.['sum']).join()
}

describe('replay', () => {
  it('of a landed delivery changes nothing, and makes the next poll of an incomplete result due', async () => {
    const webhookId = randomUUID()
    const { body, requestId } = okImage()
    await deliver(receiver.webhookUrl, body, { webhookId })
    const id = await idOf(webhookId)
    await database.sql`update mediadock.requests set next_poll_at = now() + interval '1 hour' where request_id = ${requestId}`
    const isDue = async () =>
      (
        await database.sql`select next_poll_at <= now() as is_due from mediadock.requests where request_id = ${requestId}`
      )[0]
    for (const dryRun of [true, false]) {
      expect(await isDue()).toEqual({ is_due: false })
      expect(await replayDelivery(receiver.deps.landingDeps, id, { dryRun })).toEqual([])
    }
    expect(await isDue()).toEqual({ is_due: true })
  })

  it('as a dry run shows the rows that would change, and changes none', async () => {
    const webhookId = randomUUID()
    const { body, requestId } = okImage()
    await deliver(receiver.webhookUrl, body, { webhookId })
    const id = await idOf(webhookId)
    await database.sql`delete from mediadock.requests where request_id = ${requestId}`
    await database.sql`delete from mediadock.media where request_id = ${requestId}`

    const notices: string[] = []
    const listening = await database.sql.listen('mediadock_results', (payload) => notices.push(payload))
    const before = await state()
    const preview = await replayDelivery(receiver.deps.landingDeps, id, { dryRun: true })
    expect(await state()).toBe(before)
    expect(preview).toMatchObject([
      {
        request_id: requestId,
        outcome: 'landed',
        request: { before: null, after: { status: 'COMPLETED', media_complete: false } },
        media: { written: [{ position: 0 }], removed: [] },
      },
    ])
    const done = await replayDelivery(receiver.deps.landingDeps, id, { dryRun: false })
    expect(done).toMatchObject([{ outcome: 'landed' }])
    const [row] = await database.sql`select media_complete from mediadock.results where request_id = ${requestId}`
    expect(row).toEqual({ media_complete: false })
    await eventually(() => notices.length > 0)
    expect(notices).toHaveLength(1)
    await listening.unlisten()
  })

  it('lands a parked delivery that has become usable', async () => {
    const webhookId = randomUUID()
    const { body, requestId } = failed()
    await database.sql`insert into mediadock.requests (request_id, key_name) values (${requestId}, 'live')`
    await deliver(receiver.webhookUrl, body, { webhookId, secret: sandboxKey.signing_secret })
    const id = await idOf(webhookId)
    await eventually(
      async () =>
        (await database.sql`select from mediadock.deliveries where id = ${id} and parked_reason = 'key_mismatch'`)
          .length > 0,
    )
    await database.sql`update mediadock.requests set key_name = 'sandbox' where request_id = ${requestId}`
    const done = await replayDelivery(receiver.deps.landingDeps, id, { dryRun: false })
    expect(done).toMatchObject([{ outcome: 'landed', request: { after: { status: 'FAILED' } } }])
    const [row] = await database.sql`select parked_reason from mediadock.deliveries where id = ${id}`
    expect(row).toEqual({ parked_reason: null })
  })

  it('of an unknown delivery is undefined', async () => {
    expect(await replayDelivery(receiver.deps.landingDeps, randomUUID(), { dryRun: false })).toBeUndefined()
  })
})

describe('quarantine', () => {
  it('is verified again with a formerly missing secret, for the time of arrival, and lands', async () => {
    const { body, requestId } = okAudio()
    const webhookId = randomUUID()
    for (let time = 0; time < 2; time += 1) {
      expect(
        (await deliver(receiver.webhookUrl, body, { webhookId, secret: 'whsec_of_the_new_key', t: nowSeconds() - 290 }))
          .status,
      ).toBe(401)
    }
    const forged = randomUUID()
    await deliver(receiver.webhookUrl, failed().body, { webhookId: forged, secret: 'whsec_nobody' })
    await eventually(async () => (await database.sql`select from mediadock.quarantine`).length === 3)

    const keys = keysOf(liveKey, sandboxKey, {
      name: 'new',
      api_key: 'service_live_new',
      signing_secret: 'whsec_of_the_new_key',
    })
    // Long after: the window is judged against the arrival, not against now.
    const verified = await verifyQuarantine({ ...receiver.deps, keys: () => keys })
    expect(verified).toEqual({ checked: 3, accepted: 2, refused: 1 })
    const [row] = await eventually(async () => {
      const rows = await database.sql`select status from mediadock.results where request_id = ${requestId}`
      return rows.length > 0 ? rows : undefined
    })
    expect(row).toEqual({ status: 'COMPLETED' })
    const left = await database.sql`select webhook_id from mediadock.quarantine`
    expect(left.map((one) => one['webhook_id'])).toEqual([forged])
  })
})

describe('retention', () => {
  it('deletes old processed deliveries and days, never pending deliveries or results', async () => {
    const day = 86_400_000
    const old = new Date(Date.now() - 40 * day)
    await database.sql`delete from mediadock.arrivals_other`
    // The log itself may hold the lock that a partition takes, at the start and at the end of it.
    await eventually(async () => (await ensurePartitions(receiver.deps.db, old)).missing === 0)
    const [done, pending, fresh] = [randomUUID(), randomUUID(), randomUUID()]
    const { body, requestId } = failed()
    await deliver(receiver.webhookUrl, body, { webhookId: done })
    await deliver(receiver.webhookUrl, failed().body, { webhookId: fresh })
    await idOf(done)
    await database.sql`insert into mediadock.deliveries (id, webhook_id, key_name, signed_at, received_at, headers, body)
      values (${pending}, ${pending}, 'live', ${old}, ${old}, '{}', '')`
    await database.sql`insert into mediadock.inbox (delivery_id, due_at) values (${pending}, now() + interval '5 minutes')`
    await database.sql`update mediadock.deliveries set received_at = ${old} where webhook_id = ${done}`
    await database.sql`insert into mediadock.arrivals (arrived_at, outcome, status, ack_ms) values (${old}, 'accepted', 200, 1)`
    // Rows of days without a partition, old and recent ones.
    const [past, ahead] = [new Date(Date.now() - 60 * day), new Date(Date.now() + 60 * day)]
    for (const at of [past, ahead])
      await database.sql`insert into mediadock.arrivals (arrived_at, outcome, status, ack_ms) select ${at}, 'accepted', 200, 1 from generate_series(1, 1200)`
    expect(await database.sql`select from mediadock.arrivals_other`).toHaveLength(2400)

    const pruned = { deliveries: 0, partitions: 0 }
    await eventually(async () => {
      const round = await pruneOnce({ ...receiver.deps, retentionDays: 30 }, new AbortController().signal)
      pruned.deliveries += round['deliveries'] ?? 0
      pruned.partitions += round['partitions'] ?? 0
      return pruned.partitions >= 8
    })
    expect(pruned).toEqual({ deliveries: 1, partitions: 8 })
    expect(await database.sql`select arrived_at from mediadock.arrivals_other where arrived_at <> ${ahead}`).toEqual([])
    expect(await database.sql`select from mediadock.arrivals_other`).toHaveLength(1200)
    const kept =
      await database.sql`select webhook_id from mediadock.deliveries where webhook_id in (${done}, ${pending}, ${fresh})`
    expect(new Set(kept.map((row) => row['webhook_id']))).toEqual(new Set([pending, fresh]))
    expect(await database.sql`select from mediadock.results where request_id = ${requestId}`).toHaveLength(1)
    // The page does not claim that pruned rows never existed.
    const page = async (at: string) => (await fetch(new URL(at, receiver.internalUrl))).text()
    expect(await page(`/requests/${requestId}`)).toContain(
      'No webhook for this request is kept: deliveries are pruned after RETENTION_DAYS.',
    )
    expect(await page(`/deliveries?until=${past.toISOString()}`)).toContain('Nothing of that time is kept')
    expect(
      await database.sql`select from mediadock.arrivals where arrived_at < ${new Date(Date.now() - 35 * day)}`,
    ).toHaveLength(0)
  })

  it("deletes everything else if a service's foreign key blocks a deletion, and then fails", async () => {
    await database.sql`insert into mediadock.feed_entries (position, changed_at, request_id, status, media_complete) values (1, now(), ${randomUUID()}, 2, true)`
    await database.sql`insert into mediadock.deliveries (id, webhook_id, key_name, signed_at, received_at, headers, body)
      values ('11111111-0000-4000-8000-000000000000', 'referred to', 'live', now(), now() - interval '40 days', '{}', '')`
    await database.sql`create table public.theirs as select id from mediadock.deliveries where webhook_id = 'referred to'`
    await database.sql`alter table public.theirs add foreign key (id) references mediadock.deliveries`
    const failed = pruneOnce({ ...receiver.deps, retentionDays: 30 }, new AbortController().signal)
    await expect(failed).rejects.toMatchObject({ cause: { code: '23503' } })
    expect(await database.sql`select from mediadock.feed_entries where position = 1`).toHaveLength(0)
    await database.sql`drop table public.theirs`
    await database.sql`delete from mediadock.deliveries where webhook_id = 'referred to'`
  })

  it.each([
    ['this host', 0, 400],
    ['Postgres', 400, 0],
  ])('deletes nothing early if the clock of %s is ahead', async (_whose, theirDays, ourDays) => {
    const theirTime = () => sql`now() + make_interval(days => ${theirDays})`
    const ours = () => new Date(Date.now() + ourDays * 86_400_000)
    const now = await pruningTime(receiver.deps.db, theirTime, ours)
    expect(now.getTime()).toBeLessThan(Date.now() + 60_000)
  })

  it('deletes places in the queue whose delivery is gone, and no other one', async () => {
    const [known, gone, later] = [randomUUID(), randomUUID(), new Date(Date.now() + 3600_000)]
    await database.sql`insert into mediadock.deliveries (id, webhook_id, key_name, signed_at, received_at, headers, body)
      values (${known}, ${known}, 'live', now(), now(), '{}', '')`
    for (const id of [known, gone])
      await database.sql`insert into mediadock.inbox (delivery_id, due_at) values (${id}, ${later})`
    await pruneOnce({ ...receiver.deps, retentionDays: 30 }, new AbortController().signal)
    const left = await database.sql`select delivery_id from mediadock.inbox where delivery_id in (${known}, ${gone})`
    expect(left).toEqual([{ delivery_id: known }])
    await database.sql`delete from mediadock.inbox where delivery_id = ${known}`
    await database.sql`delete from mediadock.deliveries where id = ${known}`
  })

  it('deletes parked deliveries that can never land, and keeps those that a replay may land', async () => {
    const old = new Date(Date.now() - 40 * 86_400_000)
    const requestId = randomUUID()
    const unusable = {
      not_utf8: Buffer.from([0xff]),
      not_json: Buffer.from('nonsense'),
      not_storable: Buffer.from(
        failed(requestId)
          .body.toString()
          .replace('"message":"', String.raw`"message":"\u0000`),
      ),
      unknown_shape: Buffer.from('[]'),
      no_request_id: Buffer.from('{}'),
      unknown_status: Buffer.from(`{"request_id":"${requestId}","status":"MAYBE"}`),
    }
    const webhookIds = new Map<string, string>()
    for (const [reason, body] of Object.entries(unusable)) {
      const webhookId = randomUUID()
      webhookIds.set(webhookId, reason)
      expect((await deliver(receiver.webhookUrl, body, { webhookId })).status).toBe(200)
    }
    for (const reason of ['landing_failed', 'key_mismatch']) {
      const id = randomUUID()
      webhookIds.set(id, reason)
      await database.sql`insert into mediadock.deliveries (id, webhook_id, key_name, signed_at, received_at, headers, body, parked_reason)
        values (${id}, ${id}, 'live', ${old}, ${old}, '{}', '', ${reason})`
    }
    const ofThese = () =>
      database.sql`select webhook_id, parked_reason from mediadock.deliveries where webhook_id = any(${[...webhookIds.keys()]})`
    expect(new Map((await ofThese()).map((row) => [row['webhook_id'], row['parked_reason']]))).toEqual(webhookIds)

    // Not before they are as old as that.
    const prune = () => pruneOnce({ ...receiver.deps, retentionDays: 30 }, new AbortController().signal)
    expect(await prune()).toMatchObject({ deliveries: 0 })
    await database.sql`update mediadock.deliveries set received_at = ${old} where webhook_id = any(${[...webhookIds.keys()]})`
    expect(await prune()).toMatchObject({ deliveries: Object.keys(unusable).length })
    expect(new Set((await ofThese()).map((row) => row['parked_reason']))).toEqual(
      new Set(['landing_failed', 'key_mismatch']),
    )
  })

  it("deletes deliveries parked for their key after the provider's result landed and RETENTION_DAYS passed", async () => {
    const old = new Date(Date.now() - 40 * 86_400_000)
    const { body, requestId } = failed()
    const webhookId = randomUUID()
    await database.sql`insert into mediadock.requests (request_id, key_name) values (${requestId}, 'live')`
    await deliver(receiver.webhookUrl, body, { webhookId, secret: sandboxKey.signing_secret })
    const id = await idOf(webhookId)
    await database.sql`update mediadock.deliveries set received_at = ${old} where id = ${id} and parked_reason = 'key_mismatch'`
    const prune = () => pruneOnce({ ...receiver.deps, retentionDays: 30 }, new AbortController().signal)
    expect(await prune()).toMatchObject({ deliveries: 0 })
    await receiver.deps.background.reconcileNow()
    expect(
      await database.sql`select from mediadock.requests where request_id = ${requestId} and confirmed_at is not null`,
    ).toHaveLength(1)
    expect(await prune()).toMatchObject({ deliveries: 1 })
    expect(await database.sql`select from mediadock.deliveries where id = ${id}`).toEqual([])
  })
})
