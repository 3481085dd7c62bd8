import { randomUUID } from 'node:crypto'
import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { expectAccessible, expectNoOverflow, openPage, phone, shoot } from '../../browser/support/console.ts'
import { startWorld, type World } from '../../browser/support/request-world.ts'
import { call } from '../../receiver/api/calls.ts'
import { sharedBrowser } from '../../support/browser.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import type { TestReceiver } from '../../support/receiver.ts'
import { deliver, okAudio } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

let browser: Browser
let world: World
let database: TestDatabase
let receiver: TestReceiver
beforeAll(async () => {
  browser = await sharedBrowser()
  world = await startWorld()
  const its = await withReceiver({ providerUrl: world.url })
  ;({ database, receiver } = its)
  return its.stop
})
afterAll(async () => {
  await world.close()
})

it('"X never arrived": one search shows that it landed, or why it was refused and what to do', async () => {
  const [landed, refused] = [okAudio(), okAudio()]
  await deliver(receiver.webhookUrl, landed.body)
  await deliver(receiver.webhookUrl, refused.body, { secret: 'whsec_of_nobody', webhookId: 'wh_that_never_arrived' })
  await eventually(async () => (await database.sql`select from mediadock.quarantine`).length === 1)
  await eventually(async () => (await database.sql`select from mediadock.inbox`).length === 0)

  const page = await openPage(browser, `${receiver.internalUrl}search`, { expectProblems: true })
  expect(await page.getByRole('alert').count()).toBe(0)
  const search = async (text: string) => {
    await page.getByRole('searchbox', { name: 'Find any id' }).fill(text)
    await page.keyboard.press('Enter')
    await page.waitForLoadState()
  }
  await search(landed.requestId)
  await page.waitForURL(new RegExp(`/requests/${landed.requestId}`))
  await page.goto(`${receiver.internalUrl}search?q=${landed.requestId.slice(0, 12)}`)
  expect(await page.getByRole('group', { name: 'Requests' }).locator('tbody tr').innerText()).toContain('COMPLETED')
  expect(await page.getByRole('group', { name: 'Deliveries' }).locator('tbody tr').count()).toBe(1)

  for (const text of [refused.requestId.slice(0, 13), 'wh_that_never_arrived']) {
    await search(text)
    await page.getByText('No result. A webhook with this id was refused; see below.').waitFor()
    expect(await page.getByRole('group', { name: 'Quarantined' }).locator('tbody tr').innerText()).toContain(
      'No secret matches',
    )
  }
  await expectAccessible(page)
  await shoot(page, 'search-refused')
  await page.setViewportSize(phone)
  await expectNoOverflow(page)
  await page.getByRole('link', { name: 'What to do' }).click()
  await page.getByText("Copy the key's signing secret from the provider, and add it to the configured keys").waitFor()

  await page.setViewportSize({ width: 1280, height: 800 })
  await page.goto(`${receiver.internalUrl}search?q=${randomUUID()}`)
  await page.getByRole('heading', { name: 'No match' }).waitFor()
})

it('finds submits by their Idempotency-Key, and no value of their metadata', async () => {
  const key = randomUUID()
  const submitted = await call(receiver, 'POST /api/generations', {
    body: { model: 'aurora-image', input: { prompt: 'a boat' }, idempotency_key: key, metadata: { order: 'O-4711' } },
  })
  const id = submitted.json.request_id
  const found = async (q: string) => (await call(receiver, `GET /api/search?q=${q}`)).json
  const none = { requests: [], submits: [], deliveries: [], arrivals: [], quarantined: [] }
  for (const q of [key, key.slice(0, 9), id])
    expect((await found(q)).submits).toMatchObject([{ id: key, request_id: id }])
  expect(await found('O-4711')).toEqual(none)
  expect((await call(receiver, 'GET /api/search?q=x')).status).toBe(400)
})

it('finds a delivery and its arrivals by whole ids and by beginnings of uuids', async () => {
  const { requestId, body } = okAudio()
  await deliver(receiver.webhookUrl, body, { webhookId: 'wh_search_me' })
  await deliver(receiver.webhookUrl, okAudio(requestId).body, { webhookId: 'wh_search_me', secret: 'whsec_of_nobody' })
  const [{ id } = {}] = await eventually(async () => {
    const rows = await database.sql`select id from mediadock.deliveries where webhook_id = 'wh_search_me'`
    return rows.length === 1 && rows
  })
  const found = async (q: string) => {
    const { deliveries } = (await call(receiver, `GET /api/search?q=${encodeURIComponent(q)}`)).json
    return deliveries.map((delivery: { id: string }) => delivery.id)
  }
  const texts = [id, id.toUpperCase(), id.slice(0, 9), id.replaceAll('-', ''), requestId, requestId.slice(0, 11)]
  for (const q of [...texts, 'wh_search_me']) expect([q, await found(q)]).toEqual([q, [id]])
  for (const q of ['wh_search', 'search_me', 'WH_SEARCH_ME', 'wh_search%']) expect([q, await found(q)]).toEqual([q, []])
})

it('covers the whole range of a beginning', async () => {
  const ids = [
    '5eacc001-0000-0000-0000-000000000000',
    '5eacc001-ffff-ffff-ffff-ffffffffffff',
    '5eacc002-0000-0000-0000-000000000000',
  ]
  for (const id of ids)
    await database.sql`insert into mediadock.deliveries (id, webhook_id, key_name, signed_at, received_at, headers, body) values (${id}, 'wh_range', 'live', now(), now(), '{}', '')`
  const { json } = await call(receiver, 'GET /api/search?q=5eacc001')
  expect(json.deliveries.map(({ id }: { id: string }) => id).toSorted()).toEqual(ids.slice(0, 2))
})
