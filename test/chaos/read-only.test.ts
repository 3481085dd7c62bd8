import { expect, it } from 'vitest'
import { withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { expectLandedOnce, untilInboxIsEmpty, watchEffects } from './books.ts'
import { withReceiverProcess } from './receiver-process.ts'
import { makeDeliveries, withSender } from './sender.ts'

it('a Postgres that became read-only (a failover to a standby) is answered 503, and taken again as soon as it can be written to', async () => {
  const { url, sql } = await withTestDatabase()
  await watchEffects(sql)
  const receiver = await withReceiverProcess(url)
  const sender = withSender(receiver.url, 8)
  const deliveries = makeDeliveries(24)
  const [before, during] = [deliveries.slice(0, 8), deliveries.slice(8)]
  for (const answer of await sender.sendAll(before)) expect(answer.status).toBe(200)

  const name = new URL(url).pathname.slice(1)
  // Only a new session reads the setting.
  const reconnect = () =>
    sql`select pg_terminate_backend(pid) from pg_stat_activity where datname = ${name} and application_name = 'mediadock'`
  await sql.unsafe(`alter database ${name} set default_transaction_read_only = on`)
  await reconnect()
  await eventually(async () => {
    await reconnect()
    const [answer] = await sender.sendAll(during.slice(0, 1))
    return answer?.status === 503
  })
  for (const answer of await sender.sendAll(during)) expect(answer).toMatchObject({ status: 503, outcome: 'unavailable', retryAfter: '5' })
  expect(await sql`select from mediadock.deliveries`).toHaveLength(before.length)

  await sql.unsafe(`alter database ${name} reset default_transaction_read_only`)
  await reconnect()
  await sender.sendUntilAccepted(during, () => {})
  await untilInboxIsEmpty(sql)
  await expectLandedOnce(sql, deliveries)
  expect(receiver.isRunning()).toBe(true)
})
