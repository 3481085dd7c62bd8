import { randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import type { Browser, Page } from 'playwright-core'
import { beforeAll, expect, it, onTestFinished } from 'vitest'
import { call } from '../receiver/api/calls.ts'
import { keyNamed, startProductionReceiver } from '../start/support/receiver-process.ts'
import { sharedBrowser } from '../support/browser.ts'
import { withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { json } from '../support/provider-stand.ts'
import { startTestReceiver } from '../support/receiver.ts'
import { deliver, failed, okAudio } from '../support/webhooks.ts'
import { openPage, shoot } from './support/console.ts'
import { completed, startWorld } from './support/request-world.ts'

// Alarms that wake the on-call, from the first look to the all-clear, through
// the console alone. What an operator does outside of it is marked so.

let browser: Browser
beforeAll(async () => {
  browser = await sharedBrowser()
})

const wrong = (page: Page) => page.getByRole('region', { name: 'What is wrong' })
const banner = (page: Page, cause: string) => wrong(page).locator(`[data-cause="${cause}"]`)
const allClear = (page: Page) => wrong(page).getByText('Nothing is wrong').waitFor()
const tile = async (page: Page, label: string) =>
  (await page.locator('a.tile', { hasText: label }).innerText()).replaceAll(/\s+/g, ' ')
const goTo = (page: Page, name: string) =>
  page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name, exact: true }).click()

it('a missing secret: the banner names it; after the key is added, the verified quarantine lands completely', async () => {
  const world = await startWorld()
  onTestFinished(world.close)
  const { program, keysFile, base, internalBase, database } = await startProductionReceiver({
    GENERATION_API_URL: world.url,
  })
  const missing = 'whsec_of_the_new_key'
  const send = async (secret: string, sample = okAudio(), webhookId: string = randomUUID()) =>
    (await deliver(`${base}/webhooks`, sample.body, { secret, webhookId })).status
  const page = await openPage(browser, `${internalBase}/`)
  await allClear(page)
  for (let n = 0; n < 6; n += 1) expect(await send('whsec_first_secret')).toBe(200)

  // The provider has begun to sign with a key that nobody configured here.
  const [twice, ...others] = [okAudio(), okAudio(), failed(), okAudio()]
  for (const sample of others) expect(await send(missing, sample)).toBe(401)
  const webhookId = randomUUID()
  for (let n = 0; n < 2; n += 1) expect(await send(missing, twice, webhookId)).toBe(401)
  const refused = banner(page, 'refused:no_matching_secret')
  await refused
    .getByText(/^\d+ of \d+ arrivals? in the last 5 minutes (was|were) refused: no secret matches\.$/)
    .waitFor()
  await eventually(async () => (await tile(page, 'Refused in 5 min')) === 'Refused in 5 min 5 no secret matches: 5')
  await page.getByRole('region', { name: 'Failed webhooks' }).getByText('2 of 6').waitFor()
  await shoot(page, 'drill-secret-1-now')
  await refused.getByRole('link').click()
  await page.getByText("Copy the key's signing secret from the provider, and add it to the configured keys").waitFor()
  await shoot(page, 'drill-secret-2-cause')

  // Outside: the operator adds the key and reloads.
  await fs.writeFile(keysFile, JSON.stringify([keyNamed('first', 'whsec_first_secret'), keyNamed('second', missing)]))
  program.kill('SIGHUP')

  await goTo(page, 'Keys')
  await eventually(async () => (await page.reload()) && (await page.locator('main').innerText()).includes('second'))
  await goTo(page, 'Parked & quarantine')
  await page.getByText('A secret was added: all of the newest 5').waitFor()
  await page.locator('.cause').getByRole('link', { name: 'Verify again…' }).click()
  await page.getByRole('button', { name: 'Verify 5' }).click()
  await page.getByText('5 refused arrivals of the cause “No secret matches” checked: 5 accepted.').waitFor()
  await page.getByText('All have ended: 4 processed.').waitFor()
  await shoot(page, 'drill-secret-3-verified')

  await goTo(page, 'Now')
  await allClear(page)
  await shoot(page, 'drill-secret-4-calm')
  const landed =
    await database.sql`select request_id from mediadock.results where request_id = any(${[twice, ...others].map(({ requestId }) => requestId)}) and landed_at is not null`
  expect(landed).toHaveLength(4)
  await goTo(page, 'Audit')
  expect(await page.locator('[data-rows] tr').first().innerText()).toMatch(
    /verify_quarantine\s+reason=no_matching_secret\s+checked 5,.* accepted 5[\s\S]*console/,
  )
  // Nothing of it is needed again: what is signed with it now is taken.
  expect(await send(missing)).toBe(200)
})

it('the provider is down for an hour: the backlog is shown with its duration, and drains when the provider is back', async () => {
  const database = await withTestDatabase()
  const world = await startWorld()
  const callsPerMinute = 25
  const receiver = await startTestReceiver({
    databaseUrl: database.url,
    providerUrl: world.url,
    settings: { fetchRatePerMinute: callsPerMinute },
  })
  onTestFinished(async () => {
    await receiver.stop()
    await world.close()
  })
  const begun = Date.now()
  const later = (minutes: number) => receiver.setNow(new Date(begun + minutes * 60_000))
  later(0)
  const page = await openPage(browser, receiver.internalUrl)
  await allClear(page)

  // Down: no call gets a usable answer.
  world.answer((_id, _req, res) => json(res, 503, {}))
  const ids = Array.from({ length: 45 }, () => randomUUID())
  for (const id of ids)
    await call(receiver, 'POST /api/requests', { body: { request_id: id, model: 'aurora-image', key_name: 'live' } })
  const notifiedIds = ids.slice(0, 15)
  // Of several pictures a webhook carries the first: whether it is alone only a poll shows.
  const output = { images: [{ url: world.media('0.svg') }] }
  const notified = (id: string) =>
    Buffer.from(JSON.stringify({ request_id: id, status: 'OK', payload: { model: 'aurora-image', output, cost: 4 } }))
  for (const id of notifiedIds) await deliver(receiver.webhookUrl, notified(id), { t: Math.floor(begun / 1000) })
  const whole = async () =>
    Number((await database.sql`select count(*) as n from mediadock.results where media_complete`)[0]?.['n'])
  await eventually(async () => (await database.sql`select from mediadock.inbox`).length === 0)
  expect(await whole()).toBe(0)

  later(10)
  // With three calls that failed in a row the provider is the cause, and what is overdue its effect.
  await wrong(page)
    .getByText(/30 requests are overdue/)
    .waitFor()
  await goTo(page, 'Reconciler')
  await page.getByRole('button', { name: 'Run now' }).click()
  await page
    .getByText(/requests polled, .*\d+ failed/)
    .first()
    .waitFor()

  later(60)
  await goTo(page, 'Now')
  const overdue = banner(page, 'overdue')
  await overdue.getByText(/^30 requests are overdue: .*\.$/).waitFor()
  await overdue.getByText(/All due polls are made in about \d minutes\.$/).waitFor()
  expect(await tile(page, 'Overdue requests')).toMatch(/^Overdue requests 30 \d+ to poll, about \d min$/)
  await shoot(page, 'drill-down-1-now')
  await overdue.getByRole('link').click()
  expect(await page.locator('[data-rows] > tr').count()).toBe(30)

  // Up again. What was postponed for long is due an hour later at the latest.
  later(125)
  world.answer((id, _req, res) => {
    const { status, body } = completed(id, {
      images: Array.from({ length: 4 }, (_, n) => ({ url: world.media(`${n}.svg`), width: 64, height: 48 })),
    })
    return json(res, status, body)
  })
  await goTo(page, 'Reconciler')
  const due = page.locator('.tile', { hasText: 'due now' })
  expect(await due.innerText()).toMatch(/^45\s+polls due now, about 2 min$/)
  await shoot(page, 'drill-down-2-backlog')
  const left: number[] = [45]
  for (let minute = 126; (left.at(-1) ?? 0) > 0 && left.length < 10; minute += 2) {
    // The page refreshes itself: a click on a button that it replaces at that moment is lost.
    await eventually(async () => {
      const posted = page.waitForResponse(/\/reconciler\/run$/, { timeout: 10_000 })
      await page.getByRole('button', { name: 'Run now' }).click({ timeout: 10_000 })
      return posted.then(() => true)
    })
    later(minute)
    await page.goto(`${receiver.internalUrl}reconciler`)
    left.push(Number.parseInt(await due.innerText(), 10))
  }
  // It drains within the budget of the key.
  expect(left.at(-1)).toBe(0)
  expect(left.length).toBeGreaterThan(2)
  expect(left).toEqual(left.toSorted((a, b) => b - a))
  await shoot(page, 'drill-down-3-drained')
  expect(await whole()).toBe(45)

  await goTo(page, 'Now')
  await allClear(page)
  expect(await tile(page, 'Overdue requests')).toBe('Overdue requests 0 nothing to poll')
  await page.locator(`#result-${ids[44]}, .result`).first().getByRole('link').last().click()
  await page.getByText('4 of 4').first().waitFor()
})
