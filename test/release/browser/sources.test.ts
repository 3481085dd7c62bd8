import { randomUUID } from 'node:crypto'
import type { Browser } from 'playwright-core'
import { Webhook } from 'standardwebhooks'
import { beforeAll, expect, it, vi } from 'vitest'
import { requestIdOf } from '../../../src/receiver/domain/request-id.ts'
import { withSources } from '../../../src/receiver/sources/keys.ts'
import { expectGoodLooks, openPage } from '../../browser/support/console.ts'
import { sharedBrowser } from '../../support/browser.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { send } from '../../support/http.ts'
import { keysOf, liveKey, sandboxKey, type TestReceiver } from '../../support/receiver.ts'
import { withReceiver } from '../../support/with-receiver.ts'

vi.setConfig({ testTimeout: 90_000 })

/** The longest name that a source may have, without a place where a line could break. */
const name = 'w'.repeat(63)
const secret = `whsec_${Buffer.from('a secret that is long enough').toString('base64')}`

let browser: Browser
let database: TestDatabase
let receiver: TestReceiver
beforeAll(async () => {
  browser = await sharedBrowser()
  const its = await withReceiver()
  ;({ database, receiver } = its)
  const key = { name: 'pictures-key', api_key: 'x', signing_secret: secret }
  receiver.setKeys(withSources(keysOf(liveKey, sandboxKey), JSON.stringify([{ name, kind: 'replicate', keys: [key] }])))
  return its.stop
})

async function post(prediction: object, signedWith = secret): Promise<void> {
  const webhookId = randomUUID()
  const body = JSON.stringify(prediction)
  const now = new Date()
  const headers = {
    'content-type': 'application/json',
    'webhook-id': webhookId,
    'webhook-timestamp': String(Math.floor(now.getTime() / 1000)),
    'webhook-signature': new Webhook(signedWith).sign(webhookId, now, body),
  }
  await send(`${receiver.webhookUrl}/${name}`, 'POST', { headers, body })
}

it('lists fit a phone and a desktop beside the longest name of a source', async () => {
  const output = 'https://replicate.delivery/1.png'
  await post({ id: 'job-1', status: 'succeeded', model: 'an/image-model-of-some-length', output })
  await post({ id: 'job-2', status: 'of no meaning' })
  await post({ id: 'job-3', status: 'succeeded', output }, `whsec_${Buffer.from('of a stranger').toString('base64')}`)
  await eventually(async () => (await database.sql`select from mediadock.quarantine`).length === 1)
  await eventually(async () => (await database.sql`select from mediadock.inbox`).length === 0)
  const page = await openPage(browser, receiver.internalUrl, { expectProblems: true })
  for (const list of ['requests', 'deliveries', 'deliveries?view=arrivals', 'deliveries?state=parked', 'keys']) {
    await page.goto(receiver.internalUrl + list)
    expect(await page.getByTitle('The source in SOURCES_FILE').count(), list).toBeGreaterThan(0)
    await expectGoodLooks(page, `sources-${list.replace(/\W+/, '-')}`)
  }
})

it('a delivery shows that its own source verified it', async () => {
  await post({ id: 'job-4', status: 'succeeded', output: 'https://replicate.delivery/4.png' })
  const { requestId } = requestIdOf(name, 'job-4')
  const stored = () => database.sql`select id from mediadock.deliveries where request_id = ${requestId}`
  await eventually(async () => (await stored()).length === 1)
  const [delivery] = await stored()
  const page = await openPage(browser, receiver.internalUrl, { expectProblems: true })
  await page.goto(`${receiver.internalUrl}deliveries/${delivery?.['id']}`)
  const steps = await page.getByRole('region', { name: 'How it was verified' }).innerText()
  expect(steps).toMatch(/Rules\s+those of the source w+/)
})

it('the search for any id finds the job of a source, and opens the page of its request', async () => {
  const job = 'models/veo/operations/any-id'
  await post({ id: job, status: 'succeeded', output: 'https://replicate.delivery/2.png' })
  const { requestId } = requestIdOf(name, job)
  await eventually(
    async () => (await database.sql`select from mediadock.requests where request_id = ${requestId}`).length === 1,
  )
  const page = await openPage(browser, receiver.internalUrl, { expectProblems: true })
  await page.getByRole('searchbox', { name: 'Find any id' }).fill(job)
  await page.keyboard.press('Enter')
  await page.waitForURL(new RegExp(`/requests/${requestId}`))
  expect(await page.locator('main').innerText()).toContain(job)
})
