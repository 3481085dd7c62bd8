import { randomUUID } from 'node:crypto'
import { expect, it, onTestFinished, vi } from 'vitest'
import { createPool } from '../../../src/platform/postgres/postgres.ts'
import { deliveryId, toDelivery, type Delivery } from '../../../src/receiver/domain/delivery.ts'
import { fromStored } from '../../../src/receiver/domain/environment.ts'
import { storeDeliveries } from '../../../src/receiver/intake/store.ts'
import { withTestDatabase } from '../../support/database.ts'
import { defaultSource } from '../../support/receiver.ts'

function newDelivery(environment: 'live' | 'sandbox' | 'unknown'): Delivery {
  const webhookId = randomUUID()
  const body = Buffer.from(
    JSON.stringify({ request_id: randomUUID(), status: 'ERROR', error: { code: 'x', message: 'y' } }),
  )
  const signed = {
    keyName: environment,
    environment: fromStored(environment),
    timestampSeconds: 1_800_000_000,
    receivedAt: new Date(),
  }
  return toDelivery({ source: defaultSource, id: deliveryId(webhookId, body), webhookId, ...signed, headers: {}, body })
}

const parkings = ['key_mismatch', null, 'landing_failed', 'unknown_shape'] as const
const environments = ['live', 'sandbox', 'unknown'] as const

it('takes over the key that signs again: any other after a key_mismatch, a live one unless it is unreadable', async () => {
  const { url, sql } = await withTestDatabase()
  const { db, close } = createPool({ url, max: 1, keepsPlans: true })
  onTestFinished(close)
  for (const parking of parkings)
    for (const before of environments)
      for (const after of environments) {
        const delivery = newDelivery(before)
        const { id } = delivery
        expect(await storeDeliveries(db, [delivery])).toEqual(new Map([[id, 'new']]))
        await sql`update mediadock.deliveries set parked_reason = ${parking} where id = ${id}`
        if (parking !== null) await sql`delete from mediadock.inbox where delivery_id = ${id}`
        const takesOver =
          before !== after &&
          (parking === 'key_mismatch' || (after === 'live' && (parking === null || parking === 'landing_failed')))
        const answers = await storeDeliveries(db, [
          { ...delivery, keyName: `second ${after}`, environment: fromStored(after) },
        ])
        expect([parking, before, after, ...answers.values()]).toEqual([
          parking,
          before,
          after,
          takesOver ? 'requeued' : 'known',
        ])
        const [row] = await sql`
          select key_name, environment, parked_reason, exists (
            select from mediadock.inbox where delivery_id = id and due_at <= now()) as is_due
          from mediadock.deliveries where id = ${id}`
        expect(row).toMatchObject(
          takesOver
            ? { key_name: `second ${after}`, environment: after, parked_reason: null, is_due: true }
            : { key_name: before, environment: before, parked_reason: parking },
        )
      }
})

it('leaves a delivery undecided while another transaction holds its place in the queue, or the delivery', async () => {
  const { url, sql } = await withTestDatabase()
  const { db, close } = createPool({ url, max: 1, keepsPlans: true })
  onTestFinished(close)
  const free = newDelivery('sandbox')
  const [queued, landing] = [newDelivery('sandbox'), newDelivery('sandbox')]
  const all = [free, queued, landing]
  await storeDeliveries(db, all)
  const again = all.map((one) => ({ ...one, environment: 'live' as const }))
  const answers = await sql.begin(async (tx) => {
    await tx`select from mediadock.inbox where delivery_id = ${queued.id} for update`
    await tx`select from mediadock.deliveries where id = ${landing.id} for update`
    return storeDeliveries(db, again)
  })
  expect(all.map(({ id }) => answers.get(id))).toEqual(['requeued', 'undecided', 'undecided'])
  expect([...(await storeDeliveries(db, again)).values()].sort()).toEqual(['known', 'requeued', 'requeued'])
})

it('logs why a key could not be taken over beside new deliveries', async () => {
  const { url, sql } = await withTestDatabase()
  const { db, close } = createPool({ url, max: 1, keepsPlans: true })
  onTestFinished(close)
  const known = newDelivery('sandbox')
  await storeDeliveries(db, [known])
  await sql`create function mediadock.refuse() returns trigger language plpgsql as $$ begin raise 'refused'; end $$`
  await sql`create trigger refuses before update on mediadock.deliveries execute function mediadock.refuse()`
  const again = { ...known, environment: 'live' as const }
  const logger = { warn: vi.fn() }
  const answers = await storeDeliveries(db, [again, newDelivery('live')], { logger })
  expect([...answers.values()].sort()).toEqual(['new', 'undecided'])
  expect(logger.warn).toHaveBeenCalledExactlyOnceWith({ err: expect.any(Error) }, expect.any(String))
})
