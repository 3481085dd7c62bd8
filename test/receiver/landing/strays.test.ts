import { expect, it, onTestFinished } from 'vitest'
import { claim } from '../../../src/receiver/landing/inbox.ts'
import { preferredServer, withTestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { startTestReceiver } from '../../support/receiver.ts'
import { failed } from '../../support/webhooks.ts'
import { createTestWorker, store } from '../../support/worker.ts'

it('what a process held that died with its clock an hour ahead is not left for an hour, and what is held by the right time stays held', async () => {
  const { url, sql } = await withTestDatabase(preferredServer)
  const worker = createTestWorker({ databaseUrl: url })
  await store(worker.db, [failed().body])
  const wrong = new Date(Date.now() + 3_600_000)
  expect(await claim(worker.db, { limit: 1, maxBytes: 1000, now: wrong })).toHaveLength(1)
  await store(worker.db, [failed().body])
  const inAMinute = new Date(Date.now() + 60_000)
  const held = await claim(worker.db, { limit: 1, maxBytes: 1000, now: inAMinute })

  const { stop } = await startTestReceiver({ databaseUrl: url })
  onTestFinished(stop)
  const landed = () => sql`select from mediadock.results where landed_at is not null`
  await eventually(async () => (await landed()).length > 0, 5000)
  expect(await sql`select delivery_id from mediadock.inbox`).toEqual([{ delivery_id: held[0]?.deliveryId }])
})
