import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { expectAccessible, openPage, phone, shoot } from '../../browser/support/console.ts'
import { completed, running, startWorld, track, type World } from '../../browser/support/request-world.ts'
import { call } from '../../receiver/api/calls.ts'
import { sharedBrowser } from '../../support/browser.ts'
import type { TestReceiver } from '../../support/receiver.ts'
import { withReceiver } from '../../support/with-receiver.ts'

let browser: Browser
let world: World
let receiver: TestReceiver
let trackOne: () => Promise<string>

beforeAll(async () => {
  browser = await sharedBrowser()
  world = await startWorld()
  const its = await withReceiver({ providerUrl: world.url, followsUp: true })
  receiver = its.receiver
  // Old enough for progress, and too young to be overdue, so that only a caller who waits has it polled.
  trackOne = () => track(its.database, { ago: 20 })
  return its.stop
})
afterAll(async () => {
  await world.close()
})

const open = (path: string, look = {}) => openPage(browser, `${receiver.internalUrl}${path}`, look)
const queued = (id: string, place: number) => ({
  status: 202,
  body: { request_id: id, status: 'IN_QUEUE', queue_position: place, progress: 0, logs: [] },
})

/** The provider's words appear on the page, one after the other, and nobody but the page asks for them. */
async function expectFollowed(page: Page, id: string): Promise<void> {
  const shown = page.locator('[data-request]')
  await expect.poll(() => shown.innerText()).toMatch(/IN_QUEUE\s+position 3/)
  world.says(id, running(id))
  await expect.poll(() => shown.innerText()).toMatch(/IN_PROGRESS\s+40\s%/)
  await shown.getByText('Metadata').waitFor()
}

const pictures = () => ({
  images: [{ url: world.media('0.svg'), width: 64, height: 48, original_url: world.media('1.svg') }],
})

it('has the receiver poll the request of an opened page, and shows its progress until it is complete', async () => {
  const id = await trackOne()
  world.says(id, queued(id, 3))
  const page = await open(`requests/${id}`)
  await expectFollowed(page, id)
  await expectAccessible(page)
  await shoot(page, 'request-progress')
  await page.setViewportSize(phone)
  await shoot(page, 'request-progress-phone')
  world.says(id, completed(id, pictures()))
  await expect.poll(() => page.locator('.head').innerText()).toContain('COMPLETED')
  expect(await page.locator('[data-follows]').count()).toBe(0)
  await page.locator('.gallery img').waitFor()
})

it('does the same for details beside the list, which shows the progress too', async () => {
  const id = await trackOne()
  world.says(id, queued(id, 3))
  const page = await open('requests', { viewport: { width: 1600, height: 900 } })
  await page.locator(`[data-row="${id}"] a`).first().click()
  await expectFollowed(page, id)
  expect(await page.locator('.drawer [data-row], .drawer [id]:not([id^=drawer-])').count()).toBe(0)
  await page.reload()
  expect(await page.locator(`[data-row="${id}"]`).innerText()).toMatch(/IN_PROGRESS\s+40\s%/)
  await shoot(page, 'requests-progress')
  const { json } = await call(receiver, 'GET /api/requests?limit=1')
  expect(json.data[0]).toMatchObject({ id, progress: 40, queue_position: null })
})

it('does not poll a request whose page is closed', async () => {
  const [left, held] = [await trackOne(), await trackOne()]
  for (const id of [left, held]) world.says(id, queued(id, 3))
  const page = await open(`requests/${left}`)
  await expect.poll(() => page.locator('[data-request]').innerText()).toContain('position 3')
  await page.goto(new URL(`requests/${held}`, receiver.internalUrl).href)
  const polls = async (id: string) => (await call(receiver, `GET /api/requests/${id}`)).json.polls
  await expect.poll(() => polls(held)).toBeGreaterThan(0)
  const before = await polls(left)
  await expect.poll(() => polls(held)).toBeGreaterThan(2)
  expect(await polls(left)).toBe(before)
})
