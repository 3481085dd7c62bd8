import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Browser, BrowserContextOptions, Page } from 'playwright-core'
import { randomUUID } from 'node:crypto'
import { launchBrowser } from '../support/browser.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { imageResult, json, startProviderStand, type ProviderStand } from '../support/provider-stand.ts'
import { startTestReceiver, type TestReceiver } from '../support/receiver.ts'
import { deliver, failed, okAudio, okImage } from '../support/webhooks.ts'

let browser: Browser
let database: TestDatabase
let stand: ProviderStand
let receiver: TestReceiver

// A picture of one pixel, so that the page has something real to load.
const pixel = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==', 'base64')

beforeAll(async () => {
  browser = await launchBrowser()
  database = await createTestDatabase()
  stand = await startProviderStand()
  stand.answer((id, req, res) => {
    if (req.url?.endsWith('.png')) return void res.writeHead(200, { 'content-type': 'image/png' }).end(pixel)
    const result = imageResult(id, 2)
    for (const image of result.output.images) image.url = `${stand.url}/${id}.png`
    return json(res, 200, result)
  })
  receiver = await startTestReceiver({ databaseUrl: database.url, providerUrl: stand.url })
})
afterAll(async () => {
  await browser.close()
  await receiver.stop()
  await stand.close()
  await database.drop()
})

async function open(options: BrowserContextOptions = {}): Promise<{ page: Page; problems: string[] }> {
  const context = await browser.newContext(options)
  const page = await context.newPage()
  const problems: string[] = []
  page.on('console', (message) => message.type() === 'error' && problems.push(message.text()))
  page.on('pageerror', (error) => problems.push(String(error)))
  await page.goto(receiver.internalUrl)
  return { page, problems }
}

describe('the first page', () => {
  it('shows an arrival and its picture without being loaded again', async () => {
    const { page, problems } = await open()
    await page.getByText('No webhook has arrived yet.').waitFor()
    const { body, requestId } = okImage()
    await deliver(receiver.webhookUrl, body)
    const picture = page.getByAltText(`Result of ${requestId}`)
    await picture.waitFor()
    await expect.poll(() => picture.evaluate((image) => Number(Object(image).naturalWidth))).toBe(1)
    expect(await page.locator('tbody tr').first().innerText()).toContain('accepted')
    expect(await page.locator(`#result-${requestId}`).innerText()).toContain('2 items')
    expect(problems).toEqual([])
    await page.context().close()
  })

  it('keeps hostile payloads as text', async () => {
    const requestId = randomUUID()
    const nasty = '<img src=x onerror="document.title=\'owned\'">'
    const hostile = Buffer.from(
      JSON.stringify({ request_id: requestId, status: 'OK', payload: { model: nasty, output: { audio: { url: 'javascript:document.title="owned"' } }, cost: 1 } }),
    )
    await deliver(receiver.webhookUrl, hostile)
    const { page, problems } = await open()
    await page.getByText(nasty).waitFor()
    expect(await page.title()).toBe('Now · mediadock')
    expect(await page.locator('[src^="javascript:"], [href^="javascript:"]').count()).toBe(0)
    expect(problems).toEqual([])
    await page.context().close()
  })

  it.each(['light', 'dark'] as const)('fits a phone in the %s scheme', async (colorScheme) => {
    await deliver(receiver.webhookUrl, failed().body)
    await deliver(receiver.webhookUrl, okAudio().body)
    const { page } = await open({ viewport: { width: 400, height: 800 }, colorScheme })
    await page.getByText('Latest arrivals').waitFor()
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(400)
    await page.context().close()
  })
})
