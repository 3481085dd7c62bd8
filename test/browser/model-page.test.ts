import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { long } from '../chaos/length.ts'
import { startTestProvider, type TestProvider } from '../provider/support/running-provider.ts'
import { startWebhookCatcher } from '../provider/support/webhook-catcher.ts'
import { sharedBrowser } from '../support/browser.ts'
import { expectAccessible, expectGoodLooks, expectNoOverflow, openPage, phone } from './support/console.ts'
import { wideViewport } from './support/lent-pages.ts'

let browser: Browser
let provider: TestProvider
let catcher: Awaited<ReturnType<typeof startWebhookCatcher>>
beforeAll(async () => {
  browser = await sharedBrowser()
  catcher = await startWebhookCatcher((_one, res) => void res.writeHead(503).end('<h1>away</h1> for a while'))
  provider = await startTestProvider({ webhookAllow: [catcher.origin] })
})
afterAll(async () => {
  await provider.stop()
  await catcher.close()
})

/** Wide, and within a phone; long: in all. */
async function glance(page: Page, name: string): Promise<void> {
  if (long || process.env['SHOTS'] !== undefined) return expectGoodLooks(page, name)
  await expectAccessible(page)
  await expectNoOverflow(page)
  await page.setViewportSize(phone)
  await expectNoOverflow(page)
  await page.setViewportSize(wideViewport)
}

it("a webhook's page shows the answer to each attempt", async () => {
  const key = await provider.createKey({ account: 'studio', name: 'hooks' })
  await provider.call('POST', '/v1/models/aurora-image', {
    key: key.api_key,
    body: { input: { prompt: 'a lighthouse' }, webhook_url: `${catcher.origin}/hook` },
  })
  const page = await openPage(browser, `${provider.consoleUrl}/deliveries`)
  await page.getByRole('table').getByRole('link').first().click()
  await page.getByText('<h1>away</h1> for a while').first().waitFor()
  await glance(page, 'developer-delivery')
  await page.getByRole('link', { name: 'Deliveries', exact: true }).click()
  await page.getByRole('cell', { name: /503/ }).first().waitFor()
  await glance(page, 'developer-deliveries')
})

it('an account with its keys and the models fit a phone', async () => {
  await provider.createKey({
    account: 'studio',
    name: 'a key with quite a long name, as people give them',
    environment: 'sandbox',
  })
  const page = await openPage(browser, provider.consoleUrl)
  await glance(page, 'developer-accounts')
  await page.getByRole('link', { name: 'studio', exact: true }).click()
  await page.getByRole('link', { name: 'Ledger' }).last().click()
  await page.getByRole('button', { name: 'Grant' }).waitFor()
  await glance(page, 'developer-account')
  await page.getByRole('link', { name: 'Models', exact: true }).click()
  await page.getByRole('heading', { name: 'Models' }).waitFor()
  await glance(page, 'developer-models')
})

it('finds every other page whole: tabs, keys, faults, confirmations, the ledger, the audit, an error', async () => {
  const key = await provider.createKey({ account: 'studio', name: 'sand', environment: 'sandbox' })
  const { body } = await provider.call('POST', '/v1/models/aurora-image', {
    key: key.api_key,
    headers: { 'idempotency-key': randomUUID() },
    body: { input: { prompt: 'a lighthouse' }, webhook_url: `${catcher.origin}/hook` },
  })
  const studio = '/accounts/studio'
  const pages: Record<string, string> = {
    request: `/requests/${body.request_id}`,
    requests: '/requests?status=COMPLETED',
    model: `/models/aurora-image?like=${body.request_id}`,
    keys: studio,
    'requests-of-account': '/requests?account=studio',
    'webhooks-of-account': '/deliveries?account=studio',
    faults: `/keys/${key.id}/faults`,
    revoke: `/keys/${key.id}/revoke`,
    ledger: '/ledger',
    audit: '/audit',
    'not-possible': '/accounts/nobody',
  }
  const page = await openPage(browser, provider.consoleUrl, { expectProblems: true })
  for (const [name, path] of Object.entries(pages)) {
    await page.goto(new URL(path, provider.consoleUrl).href)
    await expect(glance(page, `developer-${name}`), name).resolves.toBeUndefined()
  }
  await page.goto(new URL(studio, provider.consoleUrl).href)
  await page.getByLabel('Name').fill('new')
  await page.getByRole('button', { name: 'Create key' }).click()
  await page.getByText('Copy both now').waitFor()
  await glance(page, 'developer-new-key')
})

it('a double click on Grant posts the form once', async () => {
  await provider.createKey({ account: 'twice', name: 'web' })
  const page = await openPage(browser, `${provider.consoleUrl}/accounts/twice?tab=ledger`, { isForItself: true })
  let posts = 0
  await page.route('**/accounts/twice/credits', async (route) => {
    posts += 1
    // Long enough for a second click.
    await delay(300)
    await route.continue()
  })
  await page.getByLabel('Credits to grant').fill('5')
  await page.getByRole('button', { name: 'Grant' }).dblclick({ delay: 80 })
  await page.getByText('5 credits to spend').waitFor()
  expect(posts).toBe(1)
})
