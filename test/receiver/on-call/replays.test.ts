import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { inboxDepth } from '../../../src/receiver/gauges/inbox-depth.ts'
import { findReplay, listReplays, requeueMany } from '../../../src/receiver/on-call/replays.ts'
import { listDeliveries } from '../../../src/receiver/queries/deliveries.ts'
import { findDelivery } from '../../../src/receiver/queries/delivery-detail.ts'
import type { DeliveryFilters } from '../../../src/receiver/queries/filters.ts'
import { type TestDatabase, usualServers } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { sandboxKey, type TestReceiver } from '../../support/receiver.ts'
import { deliver, failed, okImage } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

describe.each(usualServers)('a replay of many deliveries, on the %s server', (server) => {
  let database: TestDatabase
  let receiver: TestReceiver

  beforeAll(async () => {
    const its = await withReceiver({ server })
    ;({ database, receiver } = its)
    return its.stop
  })

  const settle = async (body: Buffer, secret?: string): Promise<string> => {
    const webhookId = randomUUID()
    await deliver(receiver.webhookUrl, body, { webhookId, ...(secret !== undefined && { secret }) })
    return eventually(async () => {
      const [row] = await database.sql`select d.id from mediadock.deliveries d
        where webhook_id = ${webhookId} and not exists (select from mediadock.inbox where delivery_id = d.id)`
      return row?.['id']
    })
  }

  /** A delivery that is parked because its request was tracked with the wrong key. */
  const settleMismatched = async () => {
    const { body, requestId } = failed()
    await database.sql`insert into mediadock.requests (request_id, key_name) values (${requestId}, 'live')`
    return { requestId, id: await settle(body, sandboxKey.signing_secret) }
  }
  const correctKey = (requestId: string) =>
    database.sql`update mediadock.requests set key_name = 'sandbox' where request_id = ${requestId}`

  const replay = async (filters: DeliveryFilters) => {
    const { db, time, signal, wake } = receiver.deps
    const started = { query: {}, filters, count: 0, actor: 'tester', time, signal }
    const { id } = await requeueMany(db, started)
    wake('inbox')
    return eventually(async () => {
      const found = await findReplay(db, id)
      return found?.waiting === 0 ? found : undefined
    })
  }
  const shown = async (id: string) => (await listDeliveries(receiver.deps.db, { ids: [id] })).data[0]

  it('lands parked deliveries once their cause is fixed, and counts their outcomes', async () => {
    const [one, other] = [await settleMismatched(), await settleMismatched()]
    await correctKey(one.requestId)
    const done = await replay({ ids: [one.id, other.id] })
    expect(done).toMatchObject({ actor: 'tester', requeued: 2, parked: 1 })
    expect(done.outcomes.toSorted((a, b) => (a.outcome < b.outcome ? -1 : 1))).toEqual([
      { outcome: 'key_mismatch', count: 1 },
      { outcome: 'landed', count: 1 },
    ])
    expect(await shown(one.id)).toMatchObject({ state: 'processed', outcome: 'landed', reason: null })
    expect(await shown(other.id)).toMatchObject({ state: 'parked', reason: 'key_mismatch' })
    expect((await listReplays(receiver.deps.db))[0]).toMatchObject({ id: done.id, requeued: 2, waiting: 0, parked: 1 })
  })

  it('ends the parking for a key without effect once the request is confirmed', async () => {
    const { id, requestId } = await settleMismatched()
    const page = async () =>
      (await (await fetch(`${receiver.internalUrl}deliveries/${id}`)).text()).replaceAll(/<[^>]*>/g, '')
    const signed = 'Signed with the key sandbox (sandbox).'
    expect(await page()).toContain(`${signed} Its request has the key live (live). The provider's own result`)
    await database.sql`update mediadock.requests set status = 'FAILED', landed_at = now(), confirmed_at = now(), sandbox = false
      where request_id = ${requestId}`
    expect(await page()).toContain(`${signed} The provider has confirmed the request as live`)
    expect(await replay({ ids: [id] })).toMatchObject({ parked: 0, outcomes: [{ outcome: 'no_effect', count: 1 }] })
    expect(await shown(id)).toMatchObject({ state: 'processed', reason: null })
  })

  it("parks a delivery again after one try, with Postgres's message", async () => {
    const { id, requestId } = await settleMismatched()
    await correctKey(requestId)
    await database.sql.unsafe(`
      create or replace function public.refuse() returns trigger language plpgsql as
        $$ begin raise exception 'the ledger is closed'; end $$;
      create trigger refuse before update on mediadock.requests for each row
        when (new.request_id = '${requestId}' and new.landed_at is not null) execute function public.refuse();`)
    const done = await replay({ ids: [id] })
    await database.sql`drop trigger refuse on mediadock.requests`
    expect(done).toMatchObject({
      requeued: 1,
      parked: 1,
      failures: [
        { message: 'landing_failed: the ledger is closed (P0001), function refuse()', count: 1, delivery_ids: [id] },
      ],
    })
    expect(await shown(id)).toMatchObject({ state: 'parked', reason: 'landing_failed' })
  })

  it('leaves a processed delivery unchanged, and polls an incomplete result', async () => {
    const { body, requestId } = okImage()
    const id = await settle(body)
    const hour = database.sql`now() + interval '1 hour'`
    await database.sql`update mediadock.requests set next_poll_at = ${hour} where request_id = ${requestId}`
    const done = await replay({ ids: [id] })
    expect(done).toMatchObject({ requeued: 1, outcomes: [{ outcome: 'no_effect', count: 1 }] })
    expect(await shown(id)).toMatchObject({ state: 'processed', outcome: 'landed' })
    const rows = await database.sql`select next_poll_at <= now() as is_due from mediadock.requests
      where request_id = ${requestId}`
    expect(rows).toMatchObject([{ is_due: true }])
  })

  it('lands a processed delivery whose request was deleted', async () => {
    const { body, requestId } = failed()
    const id = await settle(body)
    await database.sql`delete from mediadock.requests where request_id = ${requestId}`
    expect(await replay({ ids: [id] })).toMatchObject({ outcomes: [{ outcome: 'landed', count: 1 }] })
    const rows = await database.sql`select status from mediadock.results where request_id = ${requestId}`
    expect(rows).toEqual([{ status: 'FAILED' }])
  })

  it('that meets a lock is tried again within a second or two, and counts its own tries', async () => {
    const { body, requestId } = failed()
    const id = await settle(body)
    const tried = () => database.sql`select due_at > now() + interval '2 s' as is_late from mediadock.inbox
      where delivery_id = ${id} and trouble is not null`
    const replayed = await database.sql.begin(async (tx) => {
      await tx`select from mediadock.requests where request_id = ${requestId} for update`
      const ended = replay({ ids: [id] })
      const [row] = await eventually(async () => {
        const rows = await tried()
        return rows.length > 0 && rows
      })
      expect(row).toEqual({ is_late: false })
      expect(await findDelivery(receiver.deps.db, id)).toMatchObject({ failures: 0, claims: 2 })
      return { ended }
    })
    expect(await replayed.ended).toMatchObject({ outcomes: [{ outcome: 'no_effect', count: 1 }] })
  })

  it('leaves a delivery that is already waiting', async () => {
    const id = await settle(failed().body)
    const dueAt = new Date(Date.now() + 200_000)
    await database.sql`insert into mediadock.inbox (delivery_id, due_at, claims) values (${id}, ${dueAt}, 3)`
    expect(await replay({ ids: [id] })).toMatchObject({ requeued: 0, waiting: 0 })
    const rows = await database.sql`delete from mediadock.inbox where delivery_id = ${id} returning due_at, claims`
    expect(rows).toEqual([{ due_at: dueAt, claims: 3 }])
  })

  it('puts each delivery back once over many pages', async () => {
    await database.sql`
      insert into mediadock.deliveries (id, webhook_id, key_name, environment, signed_at, received_at, headers, body, parked_reason)
      select gen_random_uuid(), 'wh_' || n, 'live', 'live', now(), now() - n * interval '1 minute', '{}', 'not json', 'not_json'
      from generate_series(1, 520) n`
    const done = await replay({ reason: 'not_json' })
    expect(done).toMatchObject({ requeued: 520, parked: 520, outcomes: [{ outcome: 'parked', count: 520 }] })
    expect(done.failures).toMatchObject([{ message: 'not_json: not a notification', count: 520 }])
  })

  it('parks a replayed delivery for its key even if its request already has the most deliveries kept', async () => {
    const { id, requestId } = await settleMismatched()
    await database.sql`
      insert into mediadock.deliveries (id, webhook_id, request_id, key_name, environment, signed_at, received_at, headers, body, parked_reason)
      select gen_random_uuid(), 'wh_' || n, ${requestId}, 'sandbox', 'sandbox', now(), now(), '{}', '', 'key_mismatch'
      from generate_series(1, 16) n`
    expect(await replay({ ids: [id] })).toMatchObject({ outcomes: [{ outcome: 'key_mismatch', count: 1 }] })
    expect(await shown(id)).toMatchObject({ state: 'parked', reason: 'key_mismatch' })
  })

  it('counts the wait of an old delivery from the start of the replay, not from its arrival', async () => {
    const id = await settle(failed().body)
    await database.sql`update mediadock.deliveries set received_at = now() - interval '3 days' where id = ${id}`
    const replayId = randomUUID()
    await database.sql`insert into mediadock.replays (id, started_at, actor, filters, count)
      values (${replayId}, now(), 'tester', '{}', 1)`
    await database.sql`insert into mediadock.inbox (delivery_id, due_at, replay_id)
      values (${id}, now() + interval '1 hour', ${replayId})`
    expect((await inboxDepth(receiver.deps.db, new Date())).oldestSeconds).toBeLessThan(3600)
    await database.sql`delete from mediadock.inbox where delivery_id = ${id}`
  })
})
