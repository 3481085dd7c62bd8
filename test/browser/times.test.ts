import { randomUUID } from 'node:crypto'
import type { Browser, Page } from 'playwright-core'
import { beforeAll, expect, it } from 'vitest'
import { deliverAndSettle } from '../receiver/api/calls.ts'
import { sharedBrowser } from '../support/browser.ts'
import type { TestDatabase } from '../support/database.ts'
import type { TestReceiver } from '../support/receiver.ts'
import { deliver, okAudio } from '../support/webhooks.ts'
import { withReceiver } from '../support/with-receiver.ts'
import { expectAccessible, openPage, type Look } from './support/console.ts'
import { track } from './support/request-world.ts'

let browser: Browser
let database: TestDatabase
let receiver: TestReceiver
let delivery: string
const sample = okAudio()

beforeAll(async () => {
  browser = await sharedBrowser()
  const its = await withReceiver({ stand: true })
  ;({ database, receiver } = its)
  delivery = await deliverAndSettle({ receiver, database }, sample, { webhookId: 'wh_of_three_minutes_ago_and_long' })
  await database.sql`update mediadock.deliveries set received_at = now() - interval '185 seconds'`
  return its.stop
})

const open = (path: string, look: Look = {}) => openPage(browser, `${receiver.internalUrl}${path}`, look)
const received = (page: Page) => page.locator(`[data-row="${delivery}"] time`)
const exact = /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/

it('shows relative times in lists, with the exact time as the title', async () => {
  const page = await open('deliveries')
  expect(await received(page).innerText()).toBe('3\u00a0min ago')
  expect(await received(page).getAttribute('title')).toBe(await received(page).getAttribute('datetime'))
  // Where moments have to be compared they stand there themselves.
  await page.goto(`${receiver.internalUrl}deliveries/${delivery}`)
  for (const text of await page.locator('main time').allInnerTexts()) expect(text).toMatch(/\d\d:\d\d:\d\d/)
})

it('shows the date of times older than a week', async () => {
  const page = await open('deliveries')
  await page.evaluate(
    `document.querySelector('tbody').insertAdjacentHTML('beforeend', '<tr><td><time id="old" datetime="2020-01-31T03:00:00Z" data-ago>2020-01-31 03:00:00</time></td></tr>')`,
  )
  expect(await page.locator('#old').innerText()).toBe('2020-01-31 03:00:00')
})

it("uses the receiver's clock, and keeps the times current", async () => {
  const page = await open('deliveries', { isForItself: true })
  await page.clock.install({ time: new Date('2020-01-01T00:00:00Z') })
  await page.reload()
  expect(await received(page).innerText()).toBe('3\u00a0min ago')
  await page.clock.runFor(60_000)
  expect(await received(page).innerText()).toBe('4\u00a0min ago')
})

it('shows exact times without scripts, and permanently for a reader who chose them', async () => {
  const without = await open('deliveries', { javaScriptEnabled: false })
  expect(await received(without).innerText()).toMatch(exact)
  expect(await without.getByRole('button', { name: 'Exact times' }).count()).toBe(0)
  const page = await open('deliveries', { isForItself: true })
  await page.getByRole('button', { name: 'Exact times' }).click()
  expect(await received(page).innerText()).toMatch(exact)
  await page.reload()
  expect(await received(page).innerText()).toMatch(exact)
  await page.getByRole('button', { name: 'Exact times', pressed: true }).click()
  expect(await received(page).innerText()).toBe('3\u00a0min ago')
})

it('also applies to rows that are added later', async () => {
  const page = await open('deliveries?view=arrivals&tail=on')
  await page.getByText('Tail is on').waitFor()
  await deliver(receiver.webhookUrl, okAudio().body, { webhookId: 'wh_later' })
  const row = page.locator('[data-row]', { hasText: 'wh_later' })
  expect(await row.locator('time').innerText()).toMatch(/^(just now|\d+\u00a0s ago)$/)
})

it('copies the complete id of a shortened one, by pointer and by keyboard', async () => {
  const id = await track(database, { id: randomUUID() })
  const page = await open('requests', { permissions: ['clipboard-read', 'clipboard-write'] })
  const copied = () => page.evaluate('navigator.clipboard.readText()')
  const row = page.locator(`[data-row="${sample.requestId}"]`)
  await row.getByRole('link').first().hover()
  await row.getByRole('button', { name: `Copy ${sample.requestId}` }).click()
  await page.getByText(`Copied: ${sample.requestId}`).waitFor()
  expect(await copied()).toBe(sample.requestId)
  await page.mouse.move(5, 5)
  await page.locator(`[data-row="${id}"]`).getByRole('link').first().focus()
  await page.keyboard.press('Tab')
  await page.keyboard.press('Enter')
  await page.getByText(`Copied: ${id}`).waitFor()
  expect(await copied()).toBe(id)
  expect(await page.locator('.copy').count()).toBe(1)
  await expectAccessible(page)
  // Among the facts of a page it stands there for itself.
  await page.goto(`${receiver.internalUrl}deliveries/${delivery}`)
  await page.getByRole('button', { name: 'Copy wh_of_three_minutes_ago_and_long' }).click()
  await page.getByText('Copied: wh_of_three').waitFor()
  await expectAccessible(page)
})
