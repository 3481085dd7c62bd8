import { setTimeout as delay } from 'node:timers/promises'
import { expect, it, onTestFinished } from 'vitest'
import { freePort } from '../../provider/support/free-port.ts'
import { preferredServer, withTestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { startTestReceiver } from '../../support/receiver.ts'
import { deliver, failed } from '../../support/webhooks.ts'

it('a delivery accepted before the migration lands after it', async () => {
  const { url, sql } = await withTestDatabase(preferredServer)
  const [newest] =
    await sql`delete from mediadock.migrations where ctid = (select ctid from mediadock.migrations order by id desc limit 1) returning *`
  await sql`alter table mediadock.requests rename column signed_sandbox to not_there_yet`
  const port = await freePort()
  const starting = startTestReceiver({ databaseUrl: url, settings: { port, production: true, migrateOnStart: false } })
  const update = async () => {
    await sql`alter table mediadock.requests rename column not_there_yet to signed_sandbox`
    await sql`insert into mediadock.migrations ${sql(newest!)}`
  }
  let isUpdated = false
  onTestFinished(async () => {
    if (!isUpdated) await update()
    await (await starting).stop()
  })
  const answer = await eventually(() => deliver(`http://127.0.0.1:${port}/webhooks`, failed().body))
  expect(answer).toMatchObject({ status: 200, json: { status: 'accepted' } })
  await delay(1000)
  expect(await sql`select from mediadock.requests where landed_at is not null`).toEqual([])
  expect(await sql`select from mediadock.attempts`).toEqual([])
  await update()
  isUpdated = true
  await eventually(async () => (await sql`select from mediadock.results where status = 'FAILED'`).length === 1)
})
