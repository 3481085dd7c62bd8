import type { Browser, Page } from 'playwright-core'
import { afterEach, beforeAll, beforeEach, expect, it, onTestFinished } from 'vitest'
import { expectGoodLooks, expectNoOverflow, openPage, phone } from '../../browser/support/console.ts'
import { takeAllBack } from '../../browser/support/lent-pages.ts'
import { track } from '../../browser/support/request-world.ts'
import { startPostgresProxy } from '../../platform/support/postgres-proxy.ts'
import { sharedBrowser } from '../../support/browser.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { startTestReceiver, type TestReceiver } from '../../support/receiver.ts'
import { deliver, okAudio } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

let browser: Browser
let database: TestDatabase
let receiver: TestReceiver

beforeAll(async () => {
  browser = await sharedBrowser()
})
beforeEach(async () => {
  const its = await withReceiver({})
  ;({ database, receiver } = its)
  return its.stop
})
afterEach(() => takeAllBack(browser))

const navigation = (page: Page) => page.getByRole('navigation', { name: 'Pages' })
/** The counts beside the labels. */
const counters = (page: Page) =>
  navigation(page)
    .locator('.count:visible')
    .evaluateAll((all) => all.map((each) => each.textContent))
const rows = (table: string, count: number) =>
  eventually(async () => (await database.sql`select from ${database.sql(`mediadock.${table}`)}`).length >= count)

async function leaveSomethingToDo(): Promise<void> {
  for (let n = 0; n < 2; n += 1) await deliver(receiver.webhookUrl, okAudio().body, { secret: 'whsec_of_nobody' })
  await deliver(receiver.webhookUrl, Buffer.from('not json at all'))
  await track(database, { ago: 86_400 })
  await rows('quarantine', 2)
  await rows('deliveries', 1)
}

it('shows the number of items that need attention beside each page, and no number for none', async () => {
  const calm = await openPage(browser, `${receiver.internalUrl}audit`)
  expect(await counters(calm)).toEqual([])
  await leaveSomethingToDo()
  // Issues are opened by a loop, in its own time.
  await expect
    .poll(async () => {
      await calm.reload()
      return (await counters(calm)).slice(-2)
    })
    .toEqual(['1 overdue', '3 parked or in the quarantine'])
  expect(await navigation(calm).getByRole('link', { name: 'Requests', exact: true }).count()).toBe(1)
  await expectGoodLooks(calm, 'navigation')
})

it('keeps the counters fresh beside the first page', async () => {
  const page = await openPage(browser, receiver.internalUrl)
  await page.getByText('Nothing is wrong').waitFor()
  await deliver(receiver.webhookUrl, Buffer.from('not json at all'))
  await expect.poll(async () => (await counters(page)).at(-1)).toBe('1 parked or in the quarantine')
  await database.sql`delete from mediadock.deliveries`
  await expect.poll(() => navigation(page).locator('[data-count=parked]:visible').count()).toBe(0)
})

it('shows no counter, rather than a wrong one, while Postgres does not answer, and delays no page', async () => {
  await track(database, { ago: 86_400 })
  const proxy = await startPostgresProxy(database.url)
  const behind = await startTestReceiver({ databaseUrl: proxy.url })
  onTestFinished(() => behind.stop())
  // A page that needs no Postgres, but for what stands beside it.
  const at = `${behind.internalUrl}deliveries/nothing`
  const page = await openPage(browser, at, { expectProblems: true })
  await expect
    .poll(async () => {
      await page.reload()
      return counters(page)
    })
    .toEqual(['1 overdue'])
  proxy.swallowAfter(0)
  await expect
    .poll(async () => {
      const before = performance.now()
      await page.reload()
      expect(performance.now() - before).toBeLessThan(3000)
      return counters(page)
    })
    .toEqual([])
  proxy.passOn()
  proxy.cut()
})

it('is beside the page if there is room, and above it on a phone', async () => {
  const page = await openPage(browser, `${receiver.internalUrl}audit`)
  const box = async (selector: string) =>
    (await page.locator(selector).boundingBox()) ?? { x: 0, y: 0, width: 0, height: 0 }
  const [beside, main] = [await box('header.top'), await box('main')]
  expect([beside.x, beside.y, beside.height]).toEqual([0, 0, 800])
  expect(main.x).toBeGreaterThanOrEqual(beside.width)
  expect(main.y).toBe(0)
  await page.setViewportSize(phone)
  const above = await box('header.top')
  expect(above.width).toBe(400)
  expect(above.height).toBeLessThan(110)
  expect((await box('main')).y).toBeGreaterThanOrEqual(above.height)
  await expectNoOverflow(page)
})
