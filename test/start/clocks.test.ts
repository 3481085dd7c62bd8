import { randomUUID } from 'node:crypto'
import { expect, it } from 'vitest'
import { eventually } from '../support/eventually.ts'
import { deliver, failed } from '../support/webhooks.ts'
import { anHourAhead, hostNow } from './support/an-hour-ahead.ts'
import { startProductionReceiver } from './support/receiver-process.ts'

// release/clocks.test.ts shows the same of a provider.

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
