import { randomBytes, randomUUID } from 'node:crypto'
import http from 'node:http'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { createKey, openProvider } from '../../src/provider/operating/commands.ts'
import { openLaptop } from '../laptop/support/laptop.ts'
import { call } from '../provider/support/running-provider.ts'
import { anHourAhead, hostNow } from '../start/support/an-hour-ahead.ts'
import { startProductionReceiver } from '../start/support/receiver-process.ts'
import { withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { deliver, failed } from '../support/webhooks.ts'

it("a provider on a host an hour ahead uses Postgres's clock for shared times and the host's for signatures", async () => {
  const database = await withTestDatabase()
  const laptop = await openLaptop()
  onTestFinished(laptop.remove)
  const received = Promise.withResolvers<number>()
  const receiver = http.createServer((req, res) => {
    received.resolve(Number(req.headers['x-service-timestamp']))
    res.end()
  })
  await new Promise<void>((resolve) => receiver.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void receiver.close())
  const address = receiver.address()
  if (address === null || typeof address === 'string') throw new Error('no port')

  const secretKey = randomBytes(32)
  const { deps, close } = openProvider({ databaseUrl: database.url, secretKey })
  onTestFinished(close)
  const key = await createKey(deps, { account: 'a', name: 'k', environment: 'sandbox' })
  laptop.start(
    {
      ...anHourAhead,
      DATABASE_URL: database.url,
      PROVIDER_MEDIA_DIR: path.join(laptop.folder, 'media'),
      PROVIDER_SECRET_KEY: secretKey.toString('base64'),
      PROVIDER_WEBHOOK_ALLOW: `http://127.0.0.1:${address.port}`,
      PROVIDER_DISPATCH_INTERVAL_MS: '200',
    },
    'provider',
  )
  const base = `http://127.0.0.1:${laptop.ports.PROVIDER_PORT}`
  await eventually(async () => (await fetch(`${base}/readyz`)).status === 200)
  const body = { input: { prompt: 'x' }, webhook_url: `http://127.0.0.1:${address.port}/` }
  const submitted = await call(base, 'POST', '/v1/models/aurora-image', { key: key.api_key, body })
  expect(submitted).toMatchObject({ status: 200 })
  expect(Math.abs((await received.promise) - hostNow())).toBeLessThan(60)
  const [row] = await database.sql`
    select abs(extract(epoch from r.created_at - now()))::float8 as submitted, abs(extract(epoch from d.created_at - now()))::float8 as sent
    from provider.requests r join provider.deliveries d on d.request_id = r.id`
  expect(row?.['submitted']).toBeLessThan(60)
  expect(row?.['sent']).toBeLessThan(60)
})

it("a receiver on a host an hour ahead uses Postgres's clock for due times and the host's for signatures, and logs the difference", async () => {
  const { program, base, database } = await startProductionReceiver({
    ...anHourAhead,
    GENERATION_API_URL: 'https://127.0.0.1:9',
  })
  await program.says(/this host's clock differs from Postgres's/)
  const { sql } = database

  const secret = 'whsec_first_secret'
  const { requestId, body } = failed()
  expect((await deliver(`${base}/webhooks`, body, { secret, t: hostNow() })).status).toBe(200)
  expect((await deliver(`${base}/webhooks`, failed().body, { secret })).status).toBe(401)
  const off = async () =>
    (
      await sql`select abs(extract(epoch from landed_at - now()))::float8 as s from mediadock.requests where request_id = ${requestId}`
    )[0]?.['s']
  await eventually(async () => (await off()) !== undefined && (await off()) !== null)
  expect(await off()).toBeLessThan(60)

  const tracked = randomUUID()
  await sql`insert into mediadock.requests (request_id, key_name, tracked_at, next_poll_at) values (${tracked}, 'first', now(), now())`
  const poll = async () =>
    (
      await sql`select polls, extract(epoch from next_poll_at - now())::float8 as next_in from mediadock.requests where request_id = ${tracked} and poll_outcome is not null`
    )[0]
  await eventually(async () => (await poll()) !== undefined)
  expect((await poll())?.['next_in']).toBeLessThan(600)
  const [budget] =
    await sql`select abs(slots_until - extract(epoch from now()))::float8 as off from mediadock.call_budgets where key_name = 'first'`
  expect(budget?.['off']).toBeLessThan(60)
})
