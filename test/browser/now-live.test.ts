import { randomUUID } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { eventually } from '../support/eventually.ts'
import { startTestReceiver } from '../support/receiver.ts'
import { deliver, okAudio } from '../support/webhooks.ts'
import { openPage, phone } from './support/console.ts'
import {
  browser,
  database,
  logged,
  minutes,
  open,
  receiver,
  stand,
  startReceiverForEach,
  tile,
} from './support/now-page.ts'

startReceiverForEach()

describe('the live part', () => {
  it('shows an arrival and its picture without a reload', async () => {
    const page = await open()
    await page.getByText('No webhook has arrived yet').waitFor()
    const requestId = randomUUID()
    // The link of the webhook, until the whole result is there.
    const output = { images: [{ url: `${stand.url}/${requestId}.png` }] }
    const notification = { request_id: requestId, status: 'OK', payload: { model: 'aurora-image', output, cost: 4 } }
    await deliver(receiver.webhookUrl, Buffer.from(JSON.stringify(notification)))
    const picture = page.getByAltText(`Result of ${requestId}`)
    await picture.waitFor()
    await expect.poll(() => picture.evaluate((image) => Number(Object(image).naturalWidth))).toBe(1)
    const row = page.getByRole('group', { name: 'Latest arrivals' }).locator('tbody tr').first()
    expect(await row.innerText()).toContain('accepted')
    await receiver.deps.background.reconcileNow()
    await expect.poll(() => page.locator(`#result-${requestId}`).innerText()).toContain('2 items')
    expect(await tile(page, 'Arrivals')).toBe('Arrivals in 5 min 1 1 accepted, 0 duplicates')
    await row.getByRole('link').first().click()
    await page.waitForURL('**/deliveries/*')
  })

  it('keeps focus, scroll position, open details and marks', async () => {
    await minutes({ ago: 1 })
    for (let n = 0; n < 4; n += 1) await deliver(receiver.webhookUrl, okAudio().body)
    await logged(4)
    const page = await open('', { viewport: phone })
    await page.getByText('As a table').first().click()
    await page.keyboard.press('Escape')
    for (let n = 0; n < 3; n += 1) await page.keyboard.press('j')
    const marked = page.locator('[data-row].marked')
    const id = await marked.getAttribute('data-row')
    await page.evaluate('scrollTo(0, 700)')
    await deliver(receiver.webhookUrl, okAudio().body)
    await expect.poll(() => page.locator('[data-row]').count()).toBe(5)
    expect(await marked.getAttribute('data-row')).toBe(id)
    expect(await page.evaluate('document.activeElement.closest("[data-row]").dataset.row')).toBe(id)
    expect(await page.evaluate('scrollY')).toBe(700)
    await Promise.all([
      page.waitForResponse('**/now/charts*'),
      page.waitForResponse('**/now'),
      page.evaluate(
        'document.querySelectorAll("[data-live]").forEach((part) => part.dispatchEvent(new CustomEvent("refresh")))',
      ),
    ])
    expect(await page.locator('#charts details').first().getAttribute('open')).toBe('')
    expect(await page.locator('.plot canvas').count()).toBe(4)
  })

  it('stops while the page is hidden, and when it is switched off', async () => {
    const page = await open('', { isForItself: true })
    // From here on the page's own time only passes when the test lets it.
    await page.clock.install()
    await page.reload()
    const fetched: string[] = []
    const underWay = new Set<object>()
    page.on('request', (request) => {
      fetched.push(new URL(request.url()).pathname)
      underWay.add(request)
    })
    page.on('requestfinished', (request) => underWay.delete(request))
    page.on('requestfailed', (request) => underWay.delete(request))
    const fetchedIn = async (seconds: number) => {
      // A minute that passes at once would be too long for what is under way.
      await eventually(() => underWay.size === 0)
      fetched.length = 0
      await page.clock.runFor(seconds * 1000)
      return fetched
    }
    await eventually(async () => (await fetchedIn(3)).includes('/now'))
    await page.evaluate(`Object.defineProperty(document, 'hidden', { configurable: true, get: () => true })`)
    expect(await fetchedIn(60)).toEqual([])
    await page.evaluate(`delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))`)
    await eventually(() => fetched.includes('/now') && fetched.includes('/now/charts'))

    await page.keyboard.press('t')
    expect(new URL(page.url()).searchParams.get('live')).toBe('off')
    expect(await fetchedIn(60)).toEqual([])
    const same = await open(page.url().slice(receiver.internalUrl.length))
    expect(await same.getByRole('button', { name: 'Live' }).getAttribute('aria-pressed')).toBe('false')
    await same.getByRole('button', { name: 'Live' }).click()
    await same.waitForRequest('**/now')
    expect(new URL(same.url()).search).toBe('')
  })

  it('asks Postgres once for all tabs', async () => {
    const texts = await Promise.all(
      Array.from({ length: 20 }, async () => (await fetch(new URL('now', receiver.internalUrl))).text()),
    )
    // The moment of the read is among it, to the millisecond.
    expect(new Set(texts).size).toBe(1)
  })

  it('asks to sign in again when the session has ended', async () => {
    const guarded = await startTestReceiver({
      databaseUrl: database.url,
      providerUrl: stand.url,
      settings: { internalToken: 'a-token-of-thirty-two-characters-x' },
    })
    try {
      const page = await openPage(browser, guarded.internalUrl, { expectProblems: true })
      await page.locator('input[type=password]').fill('a-token-of-thirty-two-characters-x')
      await page.getByRole('button', { name: 'Sign in' }).click()
      await page.getByRole('heading', { name: 'Now' }).waitFor()
      await page.context().clearCookies()
      await page.locator('input[type=password]').waitFor()
      expect(await page.locator('#live').count()).toBe(0)
    } finally {
      await guarded.stop()
    }
  })
})
