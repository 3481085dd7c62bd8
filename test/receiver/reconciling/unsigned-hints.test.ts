import { Counter } from 'prom-client'
import { expect, it } from 'vitest'
import { requestIdOf } from '../../../src/receiver/domain/request-id.ts'
import { createUnsignedHints } from '../../../src/receiver/reconciling/unsigned-hints.ts'
import { withTestDatabase } from '../../support/database.ts'
import { createTestWorker } from '../../support/worker.ts'

it('counts the unsigned webhooks beyond 1,000 requests of a round', async () => {
  const { url } = await withTestDatabase()
  const { db, time } = createTestWorker({ databaseUrl: url })
  const dropped = new Counter({ name: 'dropped', help: 'dropped', registers: [] })
  const count = async () => (await dropped.get()).values[0]?.value ?? 0
  const hints = createUnsignedHints({ db, time, dropped })
  const note = (n: number) => hints.note({ sourceName: 'dreams', ...requestIdOf('dreams', `job-${n}`) })
  for (let n = 0; n < 1000; n += 1) note(n)
  note(0)
  expect(await count()).toBe(0)
  note(1000)
  expect(await count()).toBe(1)
  await hints.runOnce()
  note(1000)
  expect(await count()).toBe(1)
})
