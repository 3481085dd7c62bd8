import { randomUUID } from 'node:crypto'
import type { Browser, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, beforeEach, expect, it, onTestFinished, vi } from 'vitest'
import { startPostgresProxy } from '../runtime/support/postgres-proxy.ts'
import { launchBrowser } from '../support/browser.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { json, startProviderStand, type ProviderStand } from '../support/provider-stand.ts'
import { startTestReceiver, type TestReceiver } from '../support/receiver.ts'
import { deliver, failed, okAudio, okImage } from '../support/webhooks.ts'
import { openPage, shoot } from './support/console.ts'
import { track } from './support/request-world.ts'

// What somebody who is woken reads first, and what it leads to: nothing of it may be untrue.

vi.setConfig({ testTimeout: 90_000 })

let browser: Browser
let stand: ProviderStand
let database: TestDatabase
let receiver: TestReceiver

beforeAll(async () => {
  browser = await launchBrowser()
  stand = await startProviderStand()
})
afterAll(async () => {
  await browser.close()
  await stand.close()
})
beforeEach(async () => {
  stand.answer((id, _req, res) =>
    id.endsWith('.svg') ? void res.writeHead(200, { 'content-type': 'image/svg+xml' }).end(svg) : json(res, 503, {}),
  )
  database = await createTestDatabase()
  receiver = await startTestReceiver({ databaseUrl: database.url, providerUrl: stand.url })
})
afterEach(async () => {
  await Promise.all(browser.contexts().map((context) => context.close()))
  await receiver.stop()
  await database.drop()
})

/** A picture that the browser finds. */
const shown = (id: string) => ({
  request_id: id,
  status: 'OK',
  payload: { model: 'aurora-image', output: { images: [{ url: `${stand.url}/${id}.svg` }] }, cost: 4 },
})
const svg = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 3"/>'

const open = (path = '') => openPage(browser, `${receiver.internalUrl}${path}`)
const wrong = (page: Page) => page.getByRole('region', { name: 'What is wrong' })
const causes = (page: Page) =>
  wrong(page)
    .locator('li')
    .evaluateAll((items) => items.map((item) => `${item.className} ${item.getAttribute('data-cause')}`))
const tile = async (page: Page, label: string) => (await page.locator('a.tile', { hasText: label }).innerText()).replaceAll(/\s+/g, ' ')
const settled = () => eventually(async () => (await database.sql`select from mediadock.inbox`).length === 0)
const rows = (table: string, count: number) =>
  eventually(async () => (await database.sql`select from ${database.sql(`mediadock.${table}`)}`).length >= count)

it('a scanner is a notice with its senders, and what the provider sent stands out', async () => {
  for (let n = 0; n < 4; n += 1) await deliver(receiver.webhookUrl, okAudio().body)
  await rows('known_senders', 1)
  await Promise.all(
    Array.from({ length: 60 }, () =>
      fetch(receiver.webhookUrl, {
        method: 'POST',
        headers: { 'x-service-webhook-id': randomUUID(), 'x-forwarded-for': `203.0.113.${Math.floor(Math.random() * 3)}` },
        body: JSON.stringify({ request_id: randomUUID(), status: 'OK' }),
      }),
    ),
  )
  await rows('quarantine', 60)
  const page = await open()
  await page
    .getByText(/^60 requests that nobody vouches for in 5 minutes, from 3 addresses in 1 network: 203\.0\.113\.\d \(\d+\)/)
    .waitFor()
  expect(await causes(page)).toEqual(['notice strangers'])
  expect(await page.getByRole('region', { name: 'Give-up clock' }).count()).toBe(0)
  await shoot(page, 'look-scanner')

  // Among them one about a request of ours, signed with a secret that is not here.
  const known = await track(database)
  await deliver(receiver.webhookUrl, okImage(known).body, { secret: 'whsec_of_the_new_key' })
  await rows('quarantine', 61)
  await eventually(async () => (await causes(page)).join() === 'critical refused:no_matching_secret,notice strangers')
  await page.getByText(/^\d+ % of arrivals refused .*: no secret matches\.$/).waitFor()
  const clock = page.getByRole('region', { name: 'Give-up clock' })
  expect(await clock.locator('tbody tr').count()).toBe(1)
  expect(await clock.innerText()).toContain('1 of 6')
})

it('a provider that does not answer is on the first page, and no run beside it is green', async () => {
  for (const id of [randomUUID(), randomUUID(), randomUUID()]) await deliver(receiver.webhookUrl, Buffer.from(JSON.stringify(shown(id))))
  await settled()
  await rows('polls', 3)
  const page = await open()
  const banner = wrong(page).locator('[data-cause=provider_unreachable]')
  await banner
    .getByText(/^The provider gives no usable answer since \d\d:\d\d \(answered 503\)\. 3 results wait to be completed\./)
    .waitFor()
  await shoot(page, 'look-provider')
  await track(database, { ago: 600 })
  await banner.getByRole('link').click()
  await page.getByText(/^The provider gives no usable answer since .* calls in a row came to nothing, the last: answered 503\./).waitFor()
  await page.getByRole('button', { name: 'Run now' }).click()
  await page.waitForURL(/open=/)
  expect(await page.getByRole('group', { name: 'Runs' }).locator('tbody tr').first().innerText()).toMatch(/no answer|postponed/)
  expect(await page.locator('.badge.good').count()).toBe(0)
  await shoot(page, 'look-provider-runs')
})

it('webhooks that contradict are on the first page until the provider has decided', async () => {
  const { requestId, body } = okAudio()
  await deliver(receiver.webhookUrl, body)
  await settled()
  await deliver(receiver.webhookUrl, failed(requestId).body)
  await settled()
  const page = await open()
  const banner = wrong(page).locator('[data-cause=contradiction]')
  await banner.getByText(/^1 webhook says another end than the one that stands/).waitFor()
  await banner.getByRole('link').click()
  await page.waitForURL(/flag=contradiction/)
  expect(await page.getByRole('group', { name: 'Deliveries' }).locator('tbody tr').count()).toBe(1)
})

it('what was answered 503 is not acknowledged, and not refused', async () => {
  const proxy = await startPostgresProxy(database.url)
  const behind = await startTestReceiver({ databaseUrl: proxy.url })
  onTestFinished(() => behind.stop())
  proxy.swallowAfter(0)
  expect((await deliver(behind.webhookUrl, okAudio().body)).status).toBe(503)
  proxy.passOn()
  proxy.cut()
  await rows('arrivals', 1)
  const page = await open()
  await eventually(async () => (await tile(page, 'Not acknowledged')).startsWith('Not acknowledged in 5 min 1 1 '))
  expect(await tile(page, 'Refused')).toBe('Refused in 5 min 0 none')
})

it('a bad deploy parks what a trigger refuses: the dry run says so, and once it is mended another replica replays it', async () => {
  const { sql } = database
  for (let n = 0; n < 30; n += 1) await deliver(receiver.webhookUrl, okAudio().body)
  await settled()
  await sql`delete from mediadock.media`
  await sql`delete from mediadock.requests`
  await sql`update mediadock.deliveries set parked_reason = 'landing_failed'`
  await sql.unsafe(`create function refuse() returns trigger language plpgsql as $$ begin raise exception 'the ledger is closed'; end $$;
    create constraint trigger refuse after insert on mediadock.requests deferrable initially deferred for each row execute function refuse()`)

  const page = await open()
  const banner = wrong(page).locator('[data-cause="parked:landing_failed"]')
  await banner.getByText(/^30 deliveries parked in the last hour/).waitFor()
  await banner.getByRole('link').click()
  await page.getByRole('link', { name: 'Replay all of these…' }).click()
  await page.getByText('A dry run of the newest 20 of them: all 20 would fail. Nothing has been changed.').waitFor()
  const said = page.getByText('the ledger is closed')
  expect(await said.count()).toBe(1)
  expect(await page.locator('.failures').innerText()).toMatch(
    /^20 deliveries: Postgres refuses what it would write: the ledger is closed \(P0001\)/,
  )
  await shoot(page, 'look-replay-refused')
  await page.getByRole('button', { name: 'Replay 30 all the same' }).click()
  await page.getByText('0 replayed, 30 failed. Those that failed are as they were; why stands below.').waitFor()
  expect(await said.count()).toBe(1)
  expect(await page.locator('.failures').innerText()).toMatch(/^30 deliveries: /)
  await shoot(page, 'look-replay-failed')

  // Outside: the trigger is mended. The replica on which one is working ends, and another is looked at.
  await sql`drop trigger refuse on mediadock.requests`
  await page.getByRole('link', { name: 'To the deliveries' }).click()
  await page.getByRole('link', { name: 'Replay all that match…' }).click()
  await page.getByText('A dry run of the newest 20 of them: 20 would change what is stored').waitFor()
  const button = page.getByRole('button', { name: 'Replay 30' })
  const below = await page.evaluate(
    `(() => { const y = (selector) => document.querySelector(selector).getBoundingClientRect().top; return y('.confirm > .inline') > y('details.change') })()`,
  )
  expect(below).toBe(true)
  await button.click()
  await page.getByText('30 replayed, 30 changed something.').waitFor()
  expect(await sql`select from mediadock.results where landed_at is not null`).toHaveLength(30)
  const other = await startTestReceiver({ databaseUrl: database.url, providerUrl: stand.url })
  onTestFinished(() => other.stop())
  const there = await openPage(browser, `${other.internalUrl}${new URL(page.url()).pathname.slice(1)}`)
  await there.getByText('30 replayed, 30 changed something.').waitFor()
  const audit = await sql`select detail from mediadock.audit where action = 'replay_many' order by id desc limit 1`
  expect(audit[0]?.['detail']).toEqual({ count: 30, replayed: 30, changed: 30, failed: 0, end: 'done' })
})
