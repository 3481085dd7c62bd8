import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { startTestProvider, type TestProvider } from '../provider/support/running-provider.ts'
import { launchBrowser } from '../support/browser.ts'
import { expectGoodLooks, openPage } from './support/console.ts'

let browser: Browser
let provider: TestProvider
beforeAll(async () => {
  browser = await launchBrowser()
  provider = await startTestProvider()
}, 120_000)
afterAll(async () => {
  await browser.close()
  await provider.stop()
})

it('from a model to its price, its run and its picture, each pressed once', async () => {
  await provider.createKey({ account: 'studio', name: 'web', environment: 'live' })
  await provider.grant('studio', 100)
  const page = await openPage(browser, `${provider.consoleUrl}/models`)
  await page.getByRole('link', { name: 'aurora-image', exact: true }).click()
  await page.getByLabel('prompt').fill('a lighthouse in a storm')
  await page.getByLabel('aspect_ratio').selectOption('16:9')
  await page.getByRole('button', { name: 'Estimate the price' }).click()
  await expect.poll(() => page.locator('#estimate').textContent()).toBe('4')
  expect(await page.getByLabel('prompt').inputValue()).toBe('a lighthouse in a storm')
  await expectGoodLooks(page, 'developer-model')
  await page.getByRole('button', { name: 'Run', exact: true }).click()
  await page.waitForURL('**/requests/*')
  // It is seen through without the page being loaded again.
  await page.evaluate('window.stays = true')
  const picture = page.getByRole('img', { name: 'Picture 1 of this request' })
  await picture.waitFor({ timeout: 30_000 })
  await expect.poll(() => picture.evaluate((image) => (image as unknown as { naturalWidth: number }).naturalWidth)).toBeGreaterThan(0)
  expect(await page.evaluate('window.stays')).toBe(true)
  expect(await page.locator('[hx-get]').count()).toBe(0)
  await expectGoodLooks(page, 'developer-request')
  await page.getByRole('link', { name: 'Requests', exact: true }).click()
  await page.getByRole('img', { name: 'image' }).waitFor()
  await expectGoodLooks(page, 'developer-requests')
  const rows = await provider.database.sql`select status, cost from provider.requests where account_id = 'studio'`
  expect(rows).toEqual([{ status: 'COMPLETED', cost: '4' }])
}, 90_000)

it('the code that verifies a webhook is found from the deliveries', async () => {
  const page = await openPage(browser, `${provider.consoleUrl}/deliveries`)
  await page.getByRole('link', { name: 'How to verify a webhook' }).click()
  await page.getByRole('heading', { name: 'Python' }).waitFor()
  await expectGoodLooks(page, 'developer-verifying')
})
