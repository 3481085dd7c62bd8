import { setTimeout as delay } from 'node:timers/promises'
import type { Browser } from 'playwright-core'
import { beforeAll, expect, it, vi } from 'vitest'
import { withSources } from '../../../src/receiver/sources/keys.ts'
import { expectGoodLooks, openPage } from '../../browser/support/console.ts'
import { call } from '../../receiver/api/calls.ts'
import { sharedBrowser } from '../../support/browser.ts'
import { json, startProviderStand } from '../../support/provider-stand.ts'
import { keysOf, liveKey, type TestReceiver } from '../../support/receiver.ts'
import { withReceiver } from '../../support/with-receiver.ts'

vi.setConfig({ testTimeout: 90_000 })

let browser: Browser
let receiver: TestReceiver
let asked: string[]
let status: string

beforeAll(async () => {
  browser = await sharedBrowser()
  const stand = await startProviderStand()
  stand.answer(async (id, { url }, res) => {
    if (url?.endsWith('/cancel') !== true) return json(res, 200, { id, status })
    asked.push(url)
    // Long enough for a second click.
    await delay(300)
    return json(res, 200, {})
  })
  const key = { name: 'r', api_key: 'rk', signing_secret: `whsec_${Buffer.alloc(32, 1).toString('base64')}` }
  const sources = [{ name: 'pictures', kind: 'replicate', api_url: stand.url, keys: [key] }]
  const its = await withReceiver({ settings: { keys: withSources(keysOf(liveKey), JSON.stringify(sources)) } })
  ;({ receiver } = its)
  return async () => {
    await its.stop()
    await stand.close()
  }
})

/** Opens the page of a running job, and its question whether to cancel it. */
async function confirming(job: string) {
  asked = []
  status = 'processing'
  const body = { external_id: job, key_name: 'r', model: 'an/image-model' }
  const { json: request } = await call(receiver, 'POST /api/requests', { body })
  const page = await openPage(browser, `${receiver.internalUrl}requests/${String(Object(request).id)}`)
  await page.getByRole('link', { name: 'Cancel…' }).click()
  return { page, confirm: page.getByRole('button', { name: 'Cancel the job' }) }
}

it('a double click on the confirmation asks the source once, and shows the request as canceled', async () => {
  const { page, confirm } = await confirming('job-1')
  await expectGoodLooks(page, 'cancel')
  expect(asked).toEqual([])
  status = 'canceled'
  await confirm.dblclick({ delay: 80 })
  await page.waitForURL(/poll=landed/)
  expect(asked).toEqual(['/predictions/job-1/cancel'])
  expect(await page.locator('.head').innerText()).toMatch(/CANCELED/)
  expect(await page.getByRole('status').first().innerText()).toContain('the request is now CANCELED')
  expect(await page.getByRole('link', { name: 'Cancel…' }).count()).toBe(0)
  await expectGoodLooks(page, 'cancel-landed')
})

it('a job that still runs after its cancellation stays open, and can be canceled again', async () => {
  const { page, confirm } = await confirming('job-2')
  await confirm.click()
  await page.waitForURL(/poll=cancel_asked/)
  expect(await page.locator('.head').innerText()).toMatch(/IN_PROGRESS/)
  expect(await page.getByRole('status').first().innerText()).toContain('The source was asked to cancel it')
  expect(await page.getByRole('link', { name: 'Cancel…' }).count()).toBe(1)
  await expectGoodLooks(page, 'cancel-asked')
})

it('Back asks nothing', async () => {
  const { page } = await confirming('job-3')
  await page.getByRole('link', { name: 'Back' }).click()
  await page.waitForURL(/requests\/[0-9a-f-]{36}$/)
  expect(asked).toEqual([])
})
