import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { expectGoodLooks, openPage } from '../../browser/support/console.ts'
import { startTestProvider, type TestProvider } from '../../provider/support/running-provider.ts'
import { sharedBrowser } from '../../support/browser.ts'

let browser: Browser
let provider: TestProvider
beforeAll(async () => {
  browser = await sharedBrowser()
  provider = await startTestProvider()
})
afterAll(() => provider.stop())

it("a model's page estimates, runs and shows the picture, with one click each", async () => {
  await provider.createKey({ account: 'studio', name: 'web', environment: 'live' })
  await provider.grant('studio', 100)
  const page = await openPage(browser, `${provider.consoleUrl}/models`)
  await page.locator('a[href="/models/aurora-image"]').click()
  await page.getByLabel('prompt').fill('a lighthouse in a storm')
  await page.getByLabel('aspect_ratio').selectOption('16:9')
  await page.getByRole('button', { name: 'Estimate the price' }).click()
  await expect.poll(() => page.locator('#estimate').textContent()).toBe('4')
  expect(await page.getByLabel('prompt').inputValue()).toBe('a lighthouse in a storm')
  await expectGoodLooks(page, 'developer-model')
  await page.getByRole('button', { name: 'Run', exact: true }).click()
  await page.waitForURL(/\/requests\//)
  // It is seen through without the page being loaded again.
  await page.evaluate('window.stays = true')
  const picture = page.getByRole('img', { name: 'Picture 1 of this request' })
  // Engines have the lowest priority.
  await picture.waitFor({ timeout: 100_000 })
  await expect
    .poll(() => picture.evaluate((image) => (image as unknown as { naturalWidth: number }).naturalWidth))
    .toBeGreaterThan(0)
  expect(await page.evaluate('window.stays')).toBe(true)
  expect(await page.locator('[hx-get]').count()).toBe(0)
  await expectGoodLooks(page, 'developer-request')
  await page.getByRole('link', { name: 'Requests', exact: true }).click()
  await page.getByRole('cell', { name: 'COMPLETED' }).waitFor()
  await expectGoodLooks(page, 'developer-requests')
  const rows = await provider.database.sql`select status, cost from provider.requests where account_id = 'studio'`
  expect(rows).toEqual([{ status: 'COMPLETED', cost: '4' }])
})
