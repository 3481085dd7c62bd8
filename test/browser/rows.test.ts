import type { Browser, Page } from 'playwright-core'
import { beforeAll, expect, it, onTestFinished } from 'vitest'
import { startTestProvider } from '../provider/support/running-provider.ts'
import { sharedBrowser } from '../support/browser.ts'
import { withReceiver } from '../support/with-receiver.ts'
import { openPage } from './support/console.ts'
import { track } from './support/request-world.ts'

let browser: Browser
beforeAll(async () => {
  browser = await sharedBrowser()
})

/** Presses the last cell of the first row, which has no link, in each way. */
async function expectRowOpens(page: Page, to: string): Promise<void> {
  const list = page.url()
  const cell = page.locator('tbody tr').first().locator('td').last()
  await cell.click()
  await page.waitForURL(`**${to}`)
  await page.goto(list)
  // Records what the page asks the browser to open. A busy Chromium without a window opens some tabs late or never.
  await page.evaluate(`globalThis.asked = []
    globalThis.open = (url, target, features) => void asked.push([url, target, features].join(' '))
    document.addEventListener('click', (event) => {
      if (!event.ctrlKey || event.target.localName !== 'a') return
      event.preventDefault()
      asked.push('Ctrl ' + event.target.href)
    })`)
  await cell.click({ button: 'middle' })
  await cell.click({ modifiers: ['Control'] })
  const wanted = new URL(to, list).href
  expect(await page.evaluate('asked')).toEqual([`${wanted} _blank noopener`, `Ctrl ${wanted}`])
  expect(page.url()).toBe(list)
  // The keyboard goes to the link itself.
  await page.locator('tbody tr').first().getByRole('link').first().focus()
  await page.keyboard.press('Enter')
  await page.waitForURL(`**${to}`)
}

it('a row of the receiver opens wherever it is pressed, but not at the end of a selection', async () => {
  const { database, receiver, stop } = await withReceiver()
  onTestFinished(stop)
  const id = await track(database)
  const page = await openPage(browser, `${receiver.internalUrl}requests`)
  await expectRowOpens(page, `/requests/${id}`)
  await page.goto(`${receiver.internalUrl}requests`)
  const model = page.getByText('aurora-image')
  const box = (await model.boundingBox()) ?? { x: 0, y: 0, width: 0, height: 0 }
  await page.mouse.move(box.x + 1, box.y + box.height / 2)
  await page.mouse.down()
  await page.mouse.move(box.x + box.width - 1, box.y + box.height / 2)
  await page.mouse.up()
  expect(await page.evaluate('getSelection().toString()')).toContain('aurora')
  expect(page.url()).toBe(`${receiver.internalUrl}requests`)
})

it('a row of the provider does the same, and its buttons stay buttons', async () => {
  const provider = await startTestProvider()
  onTestFinished(() => provider.stop())
  await provider.createKey({ account: 'studio', name: 'web' })
  const page = await openPage(browser, provider.consoleUrl)
  await expectRowOpens(page, '/accounts/studio')
  await page.locator('tbody td').first().click()
  expect(page.url()).toMatch(/\/accounts\/studio$/)
})
